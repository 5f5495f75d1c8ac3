"""The engine's methods for async code."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Unpack

from kev.app.engine.bridge import EngineLoop
from kev.app.engine.tiers import Tiers
from kev.client import arguments
from kev.client.queries import Options, Queries, batch_of
from kev.domain.context import Context
from kev.domain.result import Frame, ResumePoint, SlotResult


class EngineAio:
    """The engine's methods for async code, on any event loop: ``await engine.aio.submit(…)``.

    Arguments, results and errors are those of ``Engine``, and of ``kev.AsyncClient``.
    """

    def __init__(self, ready: Callable[[], tuple[EngineLoop, Tiers]]) -> None:
        self._ready = ready

    async def submit(
        self,
        queries: Queries,
        **options: Unpack[Options],
    ) -> str:
        """See ``Engine.submit``."""
        loop, tiers = self._ready()
        return await loop.run(submit_to(tiers, queries, options))

    async def wait(self, request_id: str, timeout: float | None = None) -> list[SlotResult]:
        """See ``Engine.wait``."""
        loop, tiers = self._ready()
        return await loop.run(tiers.wait(request_id, timeout))

    def ask(
        self,
        queries: Queries,
        **options: Unpack[Options],
    ) -> AsyncGenerator[Frame, None]:
        """See ``Engine.ask``."""
        loop, tiers = self._ready()
        batch = batch_of(queries, **options)
        return loop.iterate_async(lambda: tiers.ask(batch))

    def stream(self, request_id: str, resume: Iterable[ResumePoint] = ()) -> AsyncGenerator[Frame, None]:
        """See ``Engine.stream``."""
        loop, tiers = self._ready()
        points = arguments.resume_points(resume)
        return loop.iterate_async(lambda: tiers.stream(request_id, points))

    async def cancel(self, request_id: str, slots: Sequence[int] = ()) -> tuple[int, ...]:
        """See ``Engine.cancel``."""
        loop, tiers = self._ready()
        return await loop.run(tiers.cancel(request_id, slots))

    async def create_context(self, name: str, text: str, ttl_ms: int | None = None) -> Context:
        """See ``Engine.create_context``."""
        loop, tiers = self._ready()
        return await loop.run(tiers.create_context(name, text, ttl_ms))

    async def contexts(self) -> list[Context]:
        """See ``Engine.contexts``."""
        loop, tiers = self._ready()
        return await loop.run(tiers.contexts())

    async def delete_context(self, name: str) -> None:
        """See ``Engine.delete_context``."""
        loop, tiers = self._ready()
        await loop.run(tiers.delete_context(name))


async def submit_to(tiers: Tiers, queries: Queries, options: Options) -> str:
    """Makes a batch and submits it; returns the request id. Runs on the engine's loop."""
    return (await tiers.submit(batch_of(queries, **options))).request_id
