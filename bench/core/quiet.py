"""Whether the machine's cores are this process's alone while something is measured.

A virtual core is often one hardware thread of a core whose other one belongs to
somebody else. While that one computes, kernels here take up to a third longer,
although neither the load average nor the peak of multiplications shows it. What
shows it is how many instructions a core begins, so that is measured beside each
job, and held against the best of the whole run when that has ended.
"""

from __future__ import annotations

import time

from inference_svc.backends.native.errors import NativeUnavailable
from inference_svc.backends.native.roofs import instructions_per_second

NEARLY = 0.9
PAUSE_S = 0.2
FIRST_LOOKS = 10


class Quiet:
    """Instructions per second, and which of them were measured while nobody else computed here.

    Without the native kernels nothing measures it, and every moment is taken for a quiet one.
    """

    def __init__(self, threads: int, patience_s: float) -> None:
        self._threads, self._patience = threads, patience_s
        self.best = 0.0
        for _ in range(FIRST_LOOKS):
            self.rate()
            time.sleep(PAUSE_S)

    def rate(self) -> float:
        """Now, of all threads together."""
        try:
            now = instructions_per_second(self._threads)
        except NativeUnavailable:
            return 0.0
        self.best = max(self.best, now)
        return now

    def held(self, rate: float) -> bool:
        """Whether the machine was quiet at that rate, by all that was seen so far: ask when the run has ended."""
        return rate >= NEARLY * self.best

    def wait(self) -> float:
        """Waits until the machine is quiet, as long as there is patience; the rate that it has then."""
        end = time.monotonic() + self._patience
        while not self.held(rate := self.rate()) and time.monotonic() < end:
            time.sleep(PAUSE_S)
        return rate
