"""The start-up self-test as the worker runs it."""

from __future__ import annotations

import time

from inference_svc.backends.port import Backend
from inference_svc.verify import self_test


class SelfTestFailed(Exception):
    """The loaded model does not keep the promise of bit-equality; the text says where."""


def tested(backend: Backend) -> str:
    """Runs the self-test on the backend's own thread; returns a line that says what was compared.

    Raises:
        SelfTestFailed: a claim does not hold, or the KV store is too small to try it.
    """
    started = time.monotonic()
    try:
        report = self_test(backend)
    except ValueError as error:
        raise SelfTestFailed(str(error)) from error
    if not report.passed:
        raise SelfTestFailed("; ".join(f"{check.claim}: {check.detail}" for check in report.failures))
    seconds = time.monotonic() - started
    return f"passed: {len(report.checks)} claims on {report.variant} in {seconds:.1f} s"
