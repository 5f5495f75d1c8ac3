"""Whether the machine's cores are this process's alone while something is measured.

A virtual core is often one hardware thread of a core whose other one belongs to
somebody else. While that one computes, kernels here take up to a third longer,
although neither the load average nor the peak of multiplications shows it. What
shows it is how many instructions a core begins, so that is measured beside each
job.
"""

from __future__ import annotations

import time

from inference_svc.backends.native.errors import NativeUnavailable
from inference_svc.backends.native.roofs import instructions_per_second

QUIET = 0.9
PAUSE_S = 0.2


class Quiet:
    """The share of the cores that this process has, against the best seen so far.

    Without the native kernels nothing measures it, and it is taken for 1.
    """

    def __init__(self, threads: int, patience_s: float) -> None:
        self._threads, self._patience = threads, patience_s
        self.best = 0.0

    def share(self) -> float:
        """Of 1: at ``QUIET`` and above nobody else computes on these cores."""
        try:
            now = instructions_per_second(self._threads)
        except NativeUnavailable:
            return 1.0
        self.best = max(self.best, now)
        return now / self.best

    def wait(self) -> float:
        """Waits until the machine is quiet, as long as there is patience; the share that it has then."""
        end = time.monotonic() + self._patience
        while (share := self.share()) < QUIET and time.monotonic() < end:
            time.sleep(PAUSE_S)
        return share
