"""A running cluster as a door's backend, over the gRPC client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence

from kev.app.health import is_serving
from kev.client import AsyncClient
from kev.domain.question import Batch
from kev.domain.result import Frame, ResumePoint, SlotResult
from kev.wire.options import open_channel


class Remote:
    """A ``kev.app.backend.Backend`` over ``AsyncClient``. Belongs to one event loop.

    Args:
        address: ``host:port`` of the router.
    """

    def __init__(self, address: str) -> None:
        self._client = AsyncClient(address)
        self._channel = open_channel(address)

    def ask(self, batch: Batch) -> AsyncGenerator[Frame, None]:
        """See ``AsyncClient.ask``."""
        return self._client.ask(
            batch.questions,
            isolation=batch.isolation,
            mode=batch.mode,
            max_parallel=batch.max_parallel,
            request_id=batch.request_id,
            strategy=batch.strategy,
        )

    def stream(self, request_id: str, resume: Iterable[ResumePoint] = ()) -> AsyncGenerator[Frame, None]:
        """See ``AsyncClient.stream``."""
        return self._client.stream(request_id, resume)

    async def wait(self, request_id: str, wait_s: float | None) -> list[SlotResult]:
        """See ``AsyncClient.wait``."""
        return await self._client.wait(request_id, wait_s)

    async def cancel(self, request_id: str, slots: Sequence[int] = ()) -> tuple[int, ...]:
        """See ``AsyncClient.cancel``."""
        return await self._client.cancel(request_id, slots)

    async def healthy(self) -> bool:
        """Whether the router says that it serves."""
        return await is_serving(self._channel)

    async def close(self) -> None:
        """Ends the connections."""
        await self._client.close()
        await self._channel.close(None)
