"""The engine's own event loop, reached from threads and from other loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from kev.client.loop_thread import LoopThread
from kev.client.pump import Making, pumped

T = TypeVar("T")


class EngineLoop(LoopThread):
    """A loop thread that code on other event loops may use, too."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs ``work`` here for code on another loop. Cancelling the caller cancels it."""
        return await asyncio.wrap_future(self._submit(work))

    async def iterate_async(self, make: Making[T]) -> AsyncGenerator[T, None]:
        """An iterator of this loop for code on another one. Leaving it closes it."""
        pump = await self.run(pumped(make))
        try:
            while batch := await self.run(pump.take()):
                for item in batch:
                    yield item
        finally:
            if not self.closed and not self.forked:
                await self.run(pump.close())
