"""``kev.v1.AggregatorService`` over an ``Aggregator``. Errors go through the host's error table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from aggregator_svc.aggregator import Aggregator
from aggregator_svc.fanout import Reader
from aggregator_svc.patience import PATIENCE_S, Patience
from kev.domain.errors import InvalidArgument
from kev.domain.ids import REQUEST_ID_ALLOWED, is_request_id
from kev.telemetry import traces
from kev.v1 import aggregator_pb2 as pb
from kev.v1 import aggregator_pb2_grpc
from kev.wire.result import frame_fields, frame_to, result_to, resume_from
from kev.wire.serving import tenant_of, time_left

SERVICE = "kev.v1.AggregatorService"
MARGIN_S = 0.3
"""How long before the caller's deadline the answer goes out (a quarter of a short one)."""

Context = grpc.aio.ServicerContext[Any, Any]


class AggregatorServicer(aggregator_pb2_grpc.AggregatorServiceServicer):
    """Serves one aggregator to many callers.

    Args:
        patience_s: How long one write to a slow reader may hang before its backlog counts.
        tenant: Who calls.
    """

    def __init__(
        self,
        aggregator: Aggregator,
        *,
        patience_s: float = PATIENCE_S,
        tenant: Callable[[Context], str] = tenant_of,
    ) -> None:
        self._aggregator = aggregator
        self._patience_s = patience_s
        self._tenant = tenant

    async def Stream(self, request: pb.StreamRequest, context: Context) -> None:  # noqa: N802
        """Frames until every slot has ended; ``pending`` ones a little before the caller's deadline."""
        _check(request.request_id)
        points = resume_from(list(request.resume))
        left = _leave_in(context)
        async with self._aggregator.reading(
            self._tenant(context), request.request_id, points, traces.parent_in(context.invocation_metadata())
        ) as reader:
            patience = Patience(reader, self._patience_s)
            try:
                async for reply in _replies(reader, left, request.grouped):
                    await patience.wait(context.write(reply))
            finally:
                patience.close()

    async def GetResults(self, request: pb.GetResultsRequest, context: Context) -> pb.GetResultsResponse:  # noqa: N802
        """Waits, or polls; leaves a little before the caller's deadline with ``pending`` slots."""
        _check(request.request_id)
        left = _leave_in(context)
        wait_s = request.wait_ms / 1000
        results = await self._aggregator.results(
            self._tenant(context),
            request.request_id,
            wait_s if left is None else min(wait_s, left),
            traces.parent_in(context.invocation_metadata()),
        )
        return pb.GetResultsResponse(
            request_id=results.request_id,
            results=[result_to(result) for result in results.results],
            complete=results.complete,
        )


async def _replies(reader: Reader, left: float | None, grouped: bool) -> AsyncIterator[pb.StreamResponse]:
    if not grouped:
        async for frame in reader.frames(left):
            yield pb.StreamResponse(frame=frame_to(frame))
        return
    async for first, *more in reader.groups(left):
        reply = pb.StreamResponse(frame=frame_to(first))
        for frame in more:
            reply.more.add(**frame_fields(frame))
        yield reply


def _check(request_id: str) -> None:
    if not is_request_id(request_id):
        raise InvalidArgument("request_id", REQUEST_ID_ALLOWED)


def _leave_in(context: Context) -> float | None:
    left = time_left(context)
    return None if left is None else max(0.0, left - min(MARGIN_S, left / 4))
