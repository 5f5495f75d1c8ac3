"""A bounded feed from the bus to one reader, and the counters of what got lost."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from kev.bus.messages import Delta, decode
from kev.domain.outcome import Outcome

T = TypeVar("T")


@dataclass(slots=True)
class BusStats:
    """Counts since the bus was made; for metrics.

    Attributes:
        follow_dropped: Messages dropped because a follower did not read.
        undecodable: Messages that could not be decoded.
        unsent: Fast-path messages dropped because the broker was away.
        reconnects: How often the connection came back.
        errors: Errors that the client library reported.
    """

    follow_dropped: int = 0
    undecodable: int = 0
    unsent: int = 0
    reconnects: int = 0
    errors: int = 0

    def decoded(self, data: bytes, kind: type[T]) -> T | None:
        """The message in these bytes; None, and counted, if there is none."""
        try:
            return decode(data, kind)
        except (msgspec.MsgspecError, ValueError):
            self.undecodable += 1
            return None


class Feed:
    """An async iterator over pushed messages; what does not fit is dropped and counted."""

    def __init__(self, bound: int, stats: BusStats) -> None:
        self._bound = bound
        self._stats = stats
        self._items: deque[Delta | Outcome] = deque()
        self._wake = asyncio.Event()
        self._ended = False
        self.dropped = 0

    def push(self, item: Delta | Outcome) -> None:
        """Adds an item for the reader; never waits."""
        if self._ended:
            return
        if len(self._items) >= self._bound:
            self.dropped += 1
            self._stats.follow_dropped += 1
            return
        self._items.append(item)
        self._wake.set()

    def end(self) -> None:
        """Lets the reader finish; what it has not read yet is gone."""
        self._ended = True
        self._items.clear()
        self._wake.set()

    def __aiter__(self) -> Feed:
        return self

    async def __anext__(self) -> Delta | Outcome:
        while not self._items:
            if self._ended:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        return self._items.popleft()
