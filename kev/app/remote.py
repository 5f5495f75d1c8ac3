"""A running cluster as a door's backend, over the gRPC client."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Self

from kev.app.health import is_serving
from kev.client import AsyncClient
from kev.domain.context import Context
from kev.domain.errors import InvalidArgument, Unauthenticated
from kev.domain.question import Batch
from kev.domain.result import Frame, ResumePoint, SlotResult
from kev.domain.tenants import UNKNOWN, key_in
from kev.wire.options import open_channel
from kev.wire.tls import target_of


class Remote:
    """A ``kev.app.backend.Backend`` over ``AsyncClient``. Belongs to one event loop.

    Args:
        address: Of the router. The environment's API key is used, until ``calling``.
        ca: PEM file of the authorities that it trusts, if it is encrypted; see ``AsyncClient``.
    """

    def __init__(self, address: str, ca: str) -> None:
        self._client = AsyncClient(address, ca=ca if target_of(address)[1] else "")
        self._channel = open_channel(address, ca)

    def ask(self, batch: Batch) -> AsyncGenerator[Frame, None]:
        """See ``AsyncClient.ask``."""
        return self._client.ask(
            batch.questions,
            isolation=batch.isolation,
            mode=batch.mode,
            max_parallel=batch.max_parallel,
            request_id=batch.request_id,
            strategy=batch.strategy,
            prefix=batch.prefix,
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

    async def create_context(self, name: str, text: str, ttl_ms: int | None = None) -> Context:
        """See ``AsyncClient.create_context``."""
        return await self._client.create_context(name, text, ttl_ms)

    async def contexts(self) -> list[Context]:
        """See ``AsyncClient.contexts``."""
        return await self._client.contexts()

    async def delete_context(self, name: str) -> None:
        """See ``AsyncClient.delete_context``."""
        await self._client.delete_context(name)

    def calling(self, authorization: str) -> Self:
        """The caller's own key goes to the cluster, never this process's."""
        other = copy.copy(self)
        try:
            other._client = self._client.calling_as(key_in(authorization))
        except InvalidArgument:
            raise Unauthenticated(UNKNOWN) from None
        return other

    async def healthy(self) -> bool:
        """Whether the router says that it serves."""
        return await is_serving(self._channel)

    async def close(self) -> None:
        """Ends the connections."""
        await self._client.close()
        await self._channel.close(None)
