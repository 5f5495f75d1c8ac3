"""The client's calls about context pools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kev.client import arguments, fields
from kev.client.connection import Connection
from kev.domain.context import Context
from kev.v1 import context_pb2 as pb


class ContextCalls:
    """Part of ``AsyncClient``: context pools, documents that chosen questions read."""

    _retried: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
    _at: Connection

    async def create_context(self, name: str, text: str, ttl_ms: int | None = None) -> Context:
        """Makes a context pool, in place of the tenant's one of that name.

        Args:
            name: 1 to 128 letters, digits and ``. _ : -``.
            text: The document.
            ttl_ms: How long it is kept, milliseconds; None until it is deleted.

        Raises:
            InvalidArgument: names the field.
            QuotaExceeded: the tenant has as many as it may.
        """
        name, text, ttl_ms = arguments.context(name, text, ttl_ms)
        request = pb.CreatePoolRequest(name=name, text=text, ttl_ms=ttl_ms)
        reply = await self._retried(lambda: self._at.contexts.CreatePool(request, metadata=self._at.told()))
        return _context_from(reply.pool, reply.replaced)

    async def contexts(self) -> list[Context]:
        """The tenant's context pools by name."""
        reply = await self._retried(
            lambda: self._at.contexts.ListPools(pb.ListPoolsRequest(), metadata=self._at.told())
        )
        return [_context_from(pool) for pool in reply.pools]

    async def delete_context(self, name: str) -> None:
        """Ends a context pool: no new question may read it.

        Raises:
            NotFound: the tenant has none of that name.
        """
        request = pb.DeletePoolRequest(name=fields.string("name", name))
        await self._retried(lambda: self._at.contexts.DeletePool(request, metadata=self._at.told()))


def _context_from(message: pb.ContextPool, replaced: bool = False) -> Context:
    return Context(
        name=message.name,
        tokens=message.tokens,
        digest=message.digest,
        created_ms=message.created_ms,
        expires_ms=message.expires_ms,
        replaced=replaced,
    )
