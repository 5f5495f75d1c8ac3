"""Many readers of one request, each at its own pace.

A reader keeps no text, only the numbers of the slots that have something new
for it: at most as many as the request has slots. Pieces that arrive before it
looks again reach it as one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass

from aggregator_svc import metrics
from aggregator_svc.assemble import RequestText, View
from kev.domain.result import Frame, ResumePoint

GROUP = 64
GROUP_CHARACTERS = 65_536


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
        if merged := len(named) - (len(self._news) - before):
            metrics.MERGED.inc(merged)
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
        async for group in self._groups(wait_s, 1):
            yield group[0]

    def groups(self, wait_s: float | None = None) -> AsyncGenerator[list[Frame], None]:
        """The same frames, those together that are ready at the same time, at most ``GROUP`` of them
        and ``GROUP_CHARACTERS`` of text (one more frame than fits, at most)."""
        return self._groups(wait_s, GROUP)

    async def _groups(self, wait_s: float | None, most: int) -> AsyncGenerator[list[Frame], None]:
        until = None if wait_s is None else asyncio.get_running_loop().time() + wait_s
        while group := await self._take(until, most):
            yield group
        for frame in self._view.pending():
            _count([frame])
            yield [frame]

    async def _take(self, until: float | None, most: int) -> list[Frame]:
        """The next frames; none at the end, or when the time is up."""
        while True:
            if group := self._next(most):
                return group
            if self._view.done:
                return []
            if self._error is not None:
                raise self._error
            self._wake.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._wake.wait()
            except TimeoutError:
                return []

    @property
    def complete(self) -> bool:
        """Whether nothing more will arrive for it."""
        return self._heard.complete

    def _next(self, most: int) -> list[Frame]:
        """What is ready, as long as it fits into one group."""
        group: list[Frame] = []
        size = 0
        while self._news and len(group) < most and size < GROUP_CHARACTERS:
            slot = next(iter(self._news))
            del self._news[slot]
            if (frame := self._view.frame(slot)) is not None:
                group.append(frame)
                size += _size(frame)
        if not self._news:
            self.backlog.clear()
        if group:
            self._given(group)
        return group

    def _given(self, group: list[Frame]) -> None:
        if self._began is not None:
            metrics.FIRST_FRAME.observe(time.monotonic() - self._began)
            self._began = None
        _count(group)


def _size(frame: Frame) -> int:
    return len(frame.text) + (len(frame.result.text) if frame.result is not None else 0)


def _count(group: list[Frame]) -> None:
    metrics.FRAMES.inc(len(group))
    for frame in group:
        if frame.reset:
            metrics.RESETS.inc()
        if frame.result is not None:
            metrics.OUTCOMES.labels(frame.result.status).inc()
