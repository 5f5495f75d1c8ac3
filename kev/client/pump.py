"""An asynchronous iterator for a reader on another thread or loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Generic, TypeVar

T = TypeVar("T")
Making = Callable[[], AsyncGenerator[T, None]]
AHEAD = 256
"""Items read ahead of the reader. Whatever is there is handed over at once: each visit costs far more than an item."""


class Pump(Generic[T]):
    """Reads an async iterator in a task of its own, a little ahead of its reader.

    That task alone steps the iterator, so it can be closed at any moment, also
    while the reader waits for the next item.
    """

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._queue: asyncio.Queue[T | None] = asyncio.Queue(AHEAD)
        self._task = asyncio.create_task(self._read(items))

    async def take(self) -> list[T]:
        """All items that are there, at least one; none at the end. Raises what the iterator raised."""
        batch: list[T] = []
        if not (self._task.done() and self._queue.empty()):
            item = await self._queue.get()
            while item is not None:
                batch.append(item)
                if self._queue.empty():
                    return batch
                item = self._queue.get_nowait()
        if batch:
            self._queue.put_nowait(None)  # the end is for the next call
        else:
            await self._task
        return batch

    async def close(self) -> None:
        """Closes the iterator and waits until it is closed."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self, items: AsyncGenerator[T, None]) -> None:
        try:
            async with aclosing(items):
                async for item in items:
                    await self._queue.put(item)
        finally:
            if not self._queue.full():
                self._queue.put_nowait(None)


async def pumped(make: Making[T]) -> Pump[T]:
    """Starts to read an iterator in the running loop."""
    return Pump(make())
