"""An event loop in a thread of its own: asynchronous code for synchronous callers.

It works from scripts, from threads, and from notebooks whose own loop runs.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from kev.domain.errors import KevError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines in its own thread. Close it at the end; it does not keep the process alive."""

    def __init__(self, name: str = "kev-loop") -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._loop.is_closed()

    @property
    def forked(self) -> bool:
        """Whether this is a fork of the process that has the thread."""
        return os.getpid() != self._process

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs one coroutine to its end. An interrupt in the caller cancels it.

        Raises:
            KevError: the thread was closed, or stayed behind in the process that this one was forked from.
        """
        future = self._submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, make: Callable[[], AsyncGenerator[T, None]]) -> Generator[T, None, None]:
        """An asynchronous iterator, item by item. Leaving it closes the asynchronous one."""
        steps = _Steps(make())
        try:
            while item := self.call(steps.take()):
                yield item[0]
        finally:
            if not self.closed and not self.forked:
                self.call(steps.close())

    def close(self) -> None:
        """Cancels what runs, and ends the thread."""
        if self.closed or self.forked:
            return
        self.call(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self.closed or self.forked:
            work.close()
            where = "in the process that this one was forked from; make one here" if self.forked else "and was closed"
            raise KevError(f"it was made {where}")
        return asyncio.run_coroutine_threadsafe(work, self._loop)


class _Steps(Generic[T]):
    """Steps an asynchronous iterator, and closes it also when a step was interrupted."""

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._items = items
        self._step: asyncio.Task[tuple[T] | None] | None = None

    async def take(self) -> tuple[T] | None:
        """The next item, None at the end."""
        self._step = asyncio.ensure_future(self._next())
        return await self._step

    async def close(self) -> None:
        """Waits for an interrupted step, then closes."""
        if self._step is not None and not self._step.done():
            self._step.cancel()
            await asyncio.wait({self._step})
        await self._items.aclose()

    async def _next(self) -> tuple[T] | None:
        async for item in self._items:
            return (item,)
        return None


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
