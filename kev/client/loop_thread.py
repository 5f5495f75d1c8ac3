"""An event loop in a thread of its own: asynchronous code for synchronous callers.

It works from scripts, from threads, and from notebooks whose own loop runs.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from typing import Any, TypeVar

from kev.client.pump import Making, pumped
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

    def iterate(self, make: Making[T]) -> Generator[T, None, None]:
        """An asynchronous iterator, item by item. Leaving it closes the asynchronous one."""
        pump = self.call(pumped(make))
        try:
            while batch := self.call(pump.take()):
                for item in batch:
                    self._check()
                    yield item
        finally:
            if not self.closed and not self.forked:
                self.call(pump.close())

    def close(self) -> None:
        """Cancels what runs, and ends the thread."""
        if self.closed or self.forked:
            return
        self.call(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        try:
            self._check()
        except KevError:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _check(self) -> None:
        if self.closed or self.forked:
            where = "in the process that this one was forked from; make one here" if self.forked else "and was closed"
            raise KevError(f"it was made {where}")


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
