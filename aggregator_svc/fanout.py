"""Many readers of one request, each at its own pace.

A reader keeps no text, only the numbers of the slots that have something new
for it: at most as many as the request has slots. Pieces that arrive before it
looks again reach it as one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Iterable
from dataclasses import dataclass

from aggregator_svc import metrics
from aggregator_svc.assemble import RequestText, View
from kev.domain.errors import FellBehind
from kev.domain.result import Frame, ResumePoint

GROUP = 64
GROUP_CHARACTERS = 65_536
PATIENCE_S = 10.0
"""How long one write to a reader may hang before its backlog counts."""


@dataclass(slots=True)
class Backlog:
    """Pieces that wait for a reader, counted as they came. Pure."""

    limit: int
    waiting: int = 0

    def add(self, pieces: int) -> None:
        """Pieces arrived."""
        self.waiting += pieces

    def clear(self) -> int:
        """The reader took everything; returns how many pieces that were."""
        taken, self.waiting = self.waiting, 0
        return taken

    @property
    def over(self) -> bool:
        """Whether more waits than a reader may leave waiting."""
        return self.waiting > self.limit


class Reader:
    """One reader of a request: an async source of frames.

    Args:
        heard: The request's text.
        resume: Where the reader stands.
        limit: Pieces that may wait for it while a write hangs.
    """

    def __init__(self, heard: RequestText, resume: Iterable[ResumePoint], limit: int) -> None:
        self._heard = heard
        self._view = View(heard, resume)
        self._news: dict[int, None] = dict.fromkeys(heard.slots)
        self._wake = asyncio.Event()
        self._error: BaseException | None = None
        self._began: float | None = time.monotonic()
        self.backlog = Backlog(limit)

    def tell(self, slots: Iterable[int]) -> None:
        """These slots have something new. Never waits."""
        before = len(self._news)
        named = dict.fromkeys(slots)
        self._news.update(named)
        self.backlog.add(len(named))
        metrics.MERGED.inc(len(named) - (len(self._news) - before))
        self._wake.set()

    def fail(self, error: BaseException) -> None:
        """Ends the reader with an error, after what it can still have."""
        self._error = error
        self._wake.set()

    async def frames(self, wait_s: float | None = None) -> AsyncGenerator[Frame, None]:
        """Frames until every slot's last one was given, or ``wait_s`` is over:
        then open slots end with a ``pending`` frame.

        Raises:
            KevError: the request cannot be followed any further.
        """
        until = None if wait_s is None else asyncio.get_running_loop().time() + wait_s
        while (frame := await self._take(until)) is not None:
            yield frame
        for frame in self._view.pending():
            _count(frame)
            yield frame

    async def groups(self, wait_s: float | None = None) -> AsyncGenerator[list[Frame], None]:
        """The same frames, those together that are ready at the same time, at most ``GROUP`` of them
        and ``GROUP_CHARACTERS`` of text (one more frame than fits, at most)."""
        until = None if wait_s is None else asyncio.get_running_loop().time() + wait_s
        while (frame := await self._take(until)) is not None:
            group, size = [frame], _size(frame)
            while len(group) < GROUP and size < GROUP_CHARACTERS and (frame := self._next()) is not None:
                group.append(frame)
                size += _size(frame)
            yield group
        for frame in self._view.pending():
            _count(frame)
            yield [frame]

    async def _take(self, until: float | None) -> Frame | None:
        """The next frame; None at the end, or when the time is up."""
        while True:
            if (frame := self._next()) is not None:
                return frame
            if self._view.done:
                return None
            if self._error is not None:
                raise self._error
            self._wake.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._wake.wait()
            except TimeoutError:
                return None

    @property
    def complete(self) -> bool:
        """Whether nothing more will arrive for it."""
        return self._heard.complete

    def _next(self) -> Frame | None:
        while self._news:
            slot = next(iter(self._news))
            del self._news[slot]
            if not self._news:
                self.backlog.clear()
            if (frame := self._view.frame(slot)) is not None:
                if self._began is not None:
                    metrics.FIRST_FRAME.observe(time.monotonic() - self._began)
                    self._began = None
                _count(frame)
                return frame
        return None


def _size(frame: Frame) -> int:
    return len(frame.text) + (len(frame.result.text) if frame.result is not None else 0)


def _count(frame: Frame) -> None:
    metrics.FRAMES.inc()
    if frame.reset:
        metrics.RESETS.inc()
    if frame.result is not None:
        metrics.OUTCOMES.labels(frame.result.status).inc()


async def hand_over(write: Awaitable[object], reader: Reader, patience_s: float = PATIENCE_S) -> None:
    """Waits for a write to a reader; cuts the reader off when it hangs.

    A write hangs once the reader's flow-control window is full. That alone is
    no reason: a reader may pause. It is cut off when, besides, more pieces
    than its limit have come in, or nothing more will.

    Raises:
        FellBehind: the reader was cut off; what it got is whole, it can resume.
    """
    task = asyncio.ensure_future(write)
    try:
        while not (await asyncio.wait({task}, timeout=patience_s))[0]:
            if reader.backlog.over or reader.complete:
                metrics.FELL_BEHIND.inc()
                raise FellBehind(
                    f"cut off: {reader.backlog.waiting} pieces wait for this reader; resume where it stands"
                )
        await task
    finally:
        task.cancel()
