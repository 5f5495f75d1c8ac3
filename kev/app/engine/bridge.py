"""From any thread or event loop into the engine's own loop, and back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from kev.app.backend import closing

T = TypeVar("T")
Making = Callable[[], AsyncIterator[T]]
AHEAD = 256
"""Frames read ahead for a reader in another thread."""


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts ``work`` on the loop. Cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs ``work`` and waits for it. Whoever stops waiting (Ctrl-C) cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("the engine's own loop cannot wait for itself; use the async form")
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, make: Making[T]) -> Iterator[T]:
        """Iterates over an async iterator of the loop. Leaving early closes it."""
        pump = self.call(_pump(make))
        try:
            while batch := self.call(pump.take()):
                yield from batch
        finally:
            self.call(pump.close())

    async def iterate_async(self, make: Making[T]) -> AsyncIterator[T]:
        """The same for code on another loop."""
        pump = await self.run(_pump(make))
        try:
            while batch := await self.run(pump.take()):
                for item in batch:
                    yield item
        finally:
            await self.run(pump.close())

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs ``work`` on the engine's loop for code on another loop."""
        return await asyncio.wrap_future(self.begin(work))

    def close(self) -> None:
        """Ends the loop and the thread."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Pump(Generic[T]):
    """Reads an async iterator in a task of its own, a little ahead of its reader.

    One task alone steps the iterator, so it can be closed at any moment, also
    while the reader waits for the next item.
    """

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._queue: asyncio.Queue[T | None] = asyncio.Queue(AHEAD)
        self._task = asyncio.create_task(self._read(items))

    async def take(self) -> list[T]:
        """All items that are there, at least one; none at the end.

        Raises:
            What the iterator raises.
        """
        batch: list[T] = []
        item = None if self._task.done() and self._queue.empty() else await self._queue.get()
        while item is not None:
            batch.append(item)
            if self._queue.empty():
                return batch
            item = self._queue.get_nowait()
        if batch:
            self._queue.put_nowait(None)
            return batch
        await self._task
        return batch

    async def close(self) -> None:
        """Closes the iterator and waits until it is closed."""
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()  # whoever left early need not hear of it

    async def _read(self, items: AsyncIterator[T]) -> None:
        try:
            async with closing(items) as source:
                async for item in source:
                    await self._queue.put(item)
        finally:
            if not self._queue.full():
                self._queue.put_nowait(None)


async def _pump(make: Making[T]) -> Pump[T]:
    return Pump(make())
