"""The aggregator's service, relayed: a client then needs the router's address only.

The router adds it to its own server::

    add_AggregatorServiceServicer_to_server(RelayAggregator(channel), host.server)
"""

from __future__ import annotations

from typing import Any

import grpc

from kev.telemetry import traces
from kev.v1 import aggregator_pb2 as pb
from kev.v1 import aggregator_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


class RelayAggregator(aggregator_pb2_grpc.AggregatorServiceServicer):
    """Passes calls on to an aggregator, with the caller's deadline and metadata,
    and its statuses back. A caller that leaves ends the call behind it; one
    that reads slowly slows it down.

    Args:
        channel: To the aggregator (``open_channel``).
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = aggregator_pb2_grpc.AggregatorServiceStub(channel)  # type: ignore[no-untyped-call]
        self._stream = unread_stream(channel)

    async def Stream(self, request: pb.StreamRequest, context: Context) -> None:  # noqa: N802
        """Relays a stream frame by frame."""
        call = self._stream(request, timeout=context.time_remaining(), metadata=passed_on(context))
        try:
            async for reply in call:
                await context.write(reply)
        finally:
            call.cancel()

    async def GetResults(self, request: pb.GetResultsRequest, context: Context) -> pb.GetResultsResponse:  # noqa: N802
        """Relays a wait or a poll."""
        call = self._stub.GetResults(request, timeout=context.time_remaining(), metadata=passed_on(context))
        reply: pb.GetResultsResponse = await call
        return reply


def unread_stream(channel: grpc.aio.Channel) -> grpc.aio.UnaryStreamMultiCallable[pb.StreamRequest, bytes]:
    """The aggregator's ``Stream``, with replies that stay bytes: a relay does not read what it passes on.

    They are those of a ``StreamResponse``; an ``AskResponse`` has the same fields.
    """
    stream: grpc.aio.UnaryStreamMultiCallable[pb.StreamRequest, bytes] = channel.unary_stream(
        f"/{pb.DESCRIPTOR.services_by_name['AggregatorService'].full_name}/Stream",
        request_serializer=pb.StreamRequest.SerializeToString,
        response_deserializer=None,
    )
    return stream


PASSED_ON = ("authorization", traces.HEADER)
"""Metadata that a relay passes on: who calls, and in which trace."""


def passed_on(context: Context, span: traces.Span = None) -> tuple[tuple[str, str | bytes], ...]:
    """The caller's metadata that goes along with a relayed call.

    Args:
        span: Of the relay itself; it stands for the caller's.
    """
    own = traces.metadata(span)
    kept = [key for key in PASSED_ON if key not in dict(own)]
    return (*((key, value) for key, value in context.invocation_metadata() or () if key in kept), *own)
