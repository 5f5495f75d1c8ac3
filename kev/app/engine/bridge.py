"""The engine's own event loop, reached from threads and from other loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from kev.client.loop_thread import LoopThread

T = TypeVar("T")
Making = Callable[[], AsyncGenerator[T, None]]
AHEAD = 256
"""Items read ahead for a reader on another loop."""


class EngineLoop(LoopThread):
    """A loop thread that code on other event loops may use, too."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs ``work`` here for code on another loop. Cancelling the caller cancels it."""
        return await asyncio.wrap_future(self._submit(work))

    async def iterate_async(self, make: Making[T]) -> AsyncGenerator[T, None]:
        """An iterator of this loop for code on another one. Leaving it closes it."""
        pump = await self.run(_started(make))
        try:
            while batch := await self.run(pump.take()):
                for item in batch:
                    yield item
        finally:
            if not self.closed and not self.forked:
                await self.run(pump.close())


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


async def _started(make: Making[T]) -> Pump[T]:
    return Pump(make())
