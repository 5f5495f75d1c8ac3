"""``kev.v1.ContextService`` over a router's contexts. Errors go through the host's error table."""

from __future__ import annotations

from typing import Any

import grpc

from kev.bus.messages import PoolInfo
from kev.v1 import context_pb2 as pb
from kev.v1 import context_pb2_grpc
from kev.wire.serving import Tenant, tenant_of
from router_svc.contexts import Contexts

Context = grpc.aio.ServicerContext[Any, Any]
NAME = "kev.v1.ContextService"


class ContextServicer(context_pb2_grpc.ContextServiceServicer):
    """Creates, lists and deletes the caller's pools.

    Args:
        tenant: Who calls.
    """

    def __init__(self, contexts: Contexts, tenant: Tenant = tenant_of) -> None:
        self._contexts = contexts
        self._tenant = tenant

    async def CreatePool(self, request: pb.CreatePoolRequest, context: Context) -> pb.CreatePoolResponse:  # noqa: N802
        """Creates a pool, or replaces the tenant's one of that name."""
        ttl_ms = request.ttl_ms if request.HasField("ttl_ms") else None
        info, replaced = await self._contexts.create(self._tenant(context), request.name, request.text, ttl_ms)
        return pb.CreatePoolResponse(pool=_told(info), replaced=replaced)

    async def ListPools(self, request: pb.ListPoolsRequest, context: Context) -> pb.ListPoolsResponse:  # noqa: N802
        """The tenant's pools by name."""
        return pb.ListPoolsResponse(pools=[_told(info) for info in await self._contexts.list(self._tenant(context))])

    async def DeletePool(self, request: pb.DeletePoolRequest, context: Context) -> pb.DeletePoolResponse:  # noqa: N802
        """Ends a pool."""
        await self._contexts.delete(self._tenant(context), request.name)
        return pb.DeletePoolResponse()


def _told(info: PoolInfo) -> pb.ContextPool:
    return pb.ContextPool(
        name=info.name,
        tokens=info.tokens,
        digest=info.digest,
        created_ms=info.created_ms,
        expires_ms=info.expires_ms,
    )
