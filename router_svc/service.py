"""The router on gRPC: Submit, Ask, Cancel."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import msgspec

from kev.domain.errors import BusUnavailable, InvalidArgument, KevError, NotFound
from kev.domain.ids import REQUEST_ID_ALLOWED, is_request_id, new_request_id
from kev.domain.question import Batch
from kev.domain.result import Submitted
from kev.telemetry import traces
from kev.telemetry.logs import about
from kev.v1 import aggregator_pb2, aggregator_pb2_grpc, router_pb2, router_pb2_grpc
from kev.wire.question import batch_from
from kev.wire.relay import passed_on
from kev.wire.serving import tenant_of, time_left
from router_svc.router import Router, wall_ms
from router_svc.tasks import ended

log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
NAME = "kev.v1.RouterService"
_CANCEL_S = 10.0


class RouterServicer(router_pb2_grpc.RouterServiceServicer):
    """Errors are raised as the domain's; the host turns them into statuses.

    Args:
        aggregator: Channel to the aggregator whose stream ``Ask`` relays.
    """

    def __init__(self, router: Router, aggregator: grpc.aio.Channel) -> None:
        self._router = router
        self._aggregator = aggregator_pb2_grpc.AggregatorServiceStub(aggregator)  # type: ignore[no-untyped-call]

    async def Submit(self, request: router_pb2.SubmitRequest, context: Context) -> router_pb2.SubmitResponse:  # noqa: N802
        """Accepts a batch. It runs on when the caller leaves."""
        with traces.span("submit", traces.parent_in(context.invocation_metadata())):
            submitted = await self._router.submit(batch_from(request.batch, tenant_of(context)))
        return router_pb2.SubmitResponse(
            request_id=submitted.request_id,
            slots=submitted.slots,
            refused_slots=submitted.refused_slots,
            duplicate=submitted.duplicate,
        )

    async def Ask(  # noqa: N802
        self, request: router_pb2.AskRequest, context: Context
    ) -> AsyncIterator[router_pb2.AskResponse]:
        """Accepts a batch and relays its stream. When the caller leaves, what is unfinished is cancelled."""
        batch = _named(batch_from(request.batch, tenant_of(context)))
        left = time_left(context)
        latest_ms = None if left is None else wall_ms() + int(left * 1000)
        span = traces.begin("ask", traces.parent_in(context.invocation_metadata()), request_id=batch.request_id)
        with traces.under(span):
            asking = _Asking(self._router, batch, latest_ms)
        try:
            submitted = await asking.stands()
            async for reply in self._relay(submitted, request.grouped, context, span):
                yield reply
        except (asyncio.CancelledError, GeneratorExit):
            await asyncio.shield(asking.give_up())
            raise
        finally:
            asking.leave()
            traces.end(span, sys.exception())

    async def Cancel(self, request: router_pb2.CancelRequest, context: Context) -> router_pb2.CancelResponse:  # noqa: N802
        """Ends open slots as cancelled."""
        if not is_request_id(request.request_id):
            raise InvalidArgument("request_id", REQUEST_ID_ALLOWED)
        slots = await self._router.cancel(tenant_of(context), request.request_id, tuple(request.slots))
        return router_pb2.CancelResponse(cancelled_slots=slots)

    async def _relay(
        self, submitted: Submitted, grouped: bool, context: Context, span: traces.Span
    ) -> AsyncIterator[router_pb2.AskResponse]:
        """A relay that breaks leaves the request running: its reader may come back through the aggregator."""
        call = self._aggregator.Stream(
            aggregator_pb2.StreamRequest(request_id=submitted.request_id, grouped=grouped),
            timeout=time_left(context),
            metadata=passed_on(context, span),
        )
        try:
            async for reply in call:
                yield router_pb2.AskResponse(frame=reply.frame, more=reply.more)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise BusUnavailable(f"the aggregator does not answer; {submitted.request_id} runs on") from error
            raise
        finally:
            call.cancel()


class _Asking:
    """The submit behind an ``Ask``: the stream may begin before the last question has found room."""

    def __init__(self, router: Router, batch: Batch, latest_ms: int | None) -> None:
        self._router = router
        self._batch = batch
        self._stands: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(router.submit(batch, latest_ms=latest_ms, stands=self._stands.set_result))

    async def stands(self) -> Submitted:
        """Waits until the request can be followed; raises what the submit raised."""
        await asyncio.wait({self._task, self._stands}, return_when=asyncio.FIRST_COMPLETED)
        return self._stands.result() if self._stands.done() else await asyncio.shield(self._task)

    def leave(self) -> None:
        """The stream is over. A submit that still waits for room goes on: its request stands."""
        if not self._task.done():
            _RUNNING.add(self._task)
        self._task.add_done_callback(_seen)

    async def give_up(self) -> None:
        """The caller is gone: ends the submit, and the open slots if it had come to stand. Never raises.

        A submit that never stood may have named somebody else's request: that one is not touched.
        """
        await ended(self._task)
        if not self._stands.done():
            return
        try:
            async with asyncio.timeout(_CANCEL_S):
                await self._router.cancel(self._batch.tenant, self._batch.request_id, with_text=False)
        except NotFound:
            return
        except (KevError, TimeoutError) as error:
            named = about(request_id=self._batch.request_id)
            log.warning("open slots of a caller who left could not be cancelled: %s", error, extra=named)


_RUNNING: set[asyncio.Task[Submitted]] = set()
"""Submits whose ``Ask`` has ended; the loop itself holds tasks only weakly."""


def _seen(task: asyncio.Task[Submitted]) -> None:
    _RUNNING.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.debug("a submit ended after its stream: %s", error)


def _named(batch: Batch) -> Batch:
    """The batch with a request id, so that it can be cancelled whatever happens."""
    return batch if batch.request_id else msgspec.structs.replace(batch, request_id=new_request_id())
