"""Asks a service for its health."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

PATIENCE_S = 2.0


async def is_serving(channel: grpc.aio.Channel, patience_s: float = PATIENCE_S) -> bool:
    """Whether the service behind the channel answers, and says that it serves."""
    stub = health_pb2_grpc.HealthStub(channel)
    try:
        reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=patience_s)
    except grpc.aio.AioRpcError:
        return False
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
