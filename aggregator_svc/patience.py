"""Writes to a reader, and how long one may hang."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from aggregator_svc import metrics
from aggregator_svc.fanout import Reader
from kev.domain.errors import FellBehind

PATIENCE_S = 10.0
"""How long one write to a reader may hang before its backlog counts."""


class Patience:
    """Waits for the writes of one stream; cuts the reader off when one hangs. Close it.

    A write hangs once the reader's flow-control window is full. That alone is
    no reason: a reader may pause. It is cut off when, besides, more pieces
    than its limit have come in, or nothing more will.

    Nearly all writes end at once, so a write costs no task and no timer of its
    own: one timer looks now and then whether the latest write still hangs.

    Args:
        patience_s: How long a write may hang before it counts; it is looked at again after each such time.
    """

    def __init__(self, reader: Reader, patience_s: float = PATIENCE_S) -> None:
        self._reader = reader
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._writing: asyncio.Task[object] | None = None
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._cut = False

    async def wait(self, write: Awaitable[object]) -> None:
        """Waits for a write, in the task that is cut off with it.

        Raises:
            FellBehind: the reader was cut off; what it got is whole, it can resume.
        """
        self._writing, self._since = asyncio.current_task(), self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._patience_s, self._look)
        try:
            await write
        except asyncio.CancelledError:
            if self._cut and self._writing is not None and not self._writing.uncancel():
                waiting = self._reader.backlog.waiting
                raise FellBehind(f"cut off: {waiting} pieces wait for this reader; resume where it stands") from None
            raise
        finally:
            self._writing = None

    def close(self) -> None:
        """No more looks."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._writing is None:
            return  # the next write sets it again
        left = self._since + self._patience_s - self._loop.time()
        if left <= 0 and (self._reader.backlog.over or self._reader.complete):
            metrics.FELL_BEHIND.inc()
            self._cut = True
            self._writing.cancel()
        else:
            self._timer = self._loop.call_later(left if left > 0 else self._patience_s, self._look)
