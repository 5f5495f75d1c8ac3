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
from kev.domain.ids import REQUEST_ID_ALLOWED, is_request_id, new_request_id, rid_of
from kev.domain.question import Batch
from kev.domain.result import Submitted
from kev.telemetry import traces
from kev.telemetry.logs import about
from kev.v1 import aggregator_pb2, router_pb2, router_pb2_grpc
from kev.wire.question import batch_from
from kev.wire.relay import passed_on, unread_stream
from kev.wire.serving import Tenant, tenant_of, time_left
from router_svc.attendance import Attendance, Left
from router_svc.router import Router, wall_ms
from router_svc.tasks import ended

log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
NAME = "kev.v1.RouterService"
MAX_KEEP_MS = 60_000
_CANCEL_S = 10.0


class RouterServicer(router_pb2_grpc.RouterServiceServicer):
    """Errors are raised as the domain's; the host turns them into statuses.

    Args:
        aggregator: Channel to the aggregator whose stream ``Ask`` relays.
        tenant: Who calls.
    """

    def __init__(self, router: Router, aggregator: grpc.aio.Channel, tenant: Tenant = tenant_of) -> None:
        self._router = router
        self._attendance = Attendance()
        self._tenant = tenant
        self._stream = unread_stream(aggregator)

    async def Submit(self, request: router_pb2.SubmitRequest, context: Context) -> router_pb2.SubmitResponse:  # noqa: N802
        """Accepts a batch. It runs on when the caller leaves."""
        with traces.span("submit", traces.parent_in(context.invocation_metadata())):
            submitted = await self._router.submit(batch_from(request.batch, self._tenant(context)))
        return router_pb2.SubmitResponse(
            request_id=submitted.request_id,
            slots=submitted.slots,
            refused_slots=submitted.refused_slots,
            duplicate=submitted.duplicate,
        )

    async def Ask(self, request: router_pb2.AskRequest, context: Context) -> AsyncIterator[bytes]:  # noqa: N802
        """Accepts a batch and relays its stream, unread. When the last caller leaves, what is unfinished is
        cancelled."""
        batch = batch_from(request.batch, self._tenant(context))
        if request.resume and not batch.request_id:
            raise InvalidArgument("batch.request_id", "must name the request whose stream goes on")
        batch = _named(batch)
        caller = _Caller(request, batch)
        left = time_left(context)
        latest_ms = None if left is None else wall_ms() + int(left * 1000)
        span = traces.begin("ask", traces.parent_in(context.invocation_metadata()), request_id=batch.request_id)
        asking = None
        if not request.resume:
            with traces.under(span):
                asking = _Asking(self._router, batch, latest_ms)
        there = True
        self._attendance.enter(caller.rid, caller.ask_id)
        try:
            if asking is not None:
                await asking.stands()
            async for reply in self._relay(request, batch, context, span):
                yield reply
        except (asyncio.CancelledError, GeneratorExit):
            there = False
            await asyncio.shield(self._left(caller, batch, asking))
            raise
        finally:
            if there:
                self._attendance.leave(caller.rid, caller.ask_id)
            if asking is not None:
                asking.leave()
            traces.end(span, sys.exception())

    async def Cancel(self, request: router_pb2.CancelRequest, context: Context) -> router_pb2.CancelResponse:  # noqa: N802
        """Ends open slots as cancelled."""
        if not is_request_id(request.request_id):
            raise InvalidArgument("request_id", REQUEST_ID_ALLOWED)
        tenant = self._tenant(context)
        if not request.ask_id:
            slots = await self._router.cancel(tenant, request.request_id, tuple(request.slots))
        elif self._attendance.leaves(rid_of(tenant, request.request_id), request.ask_id):
            slots = await self._cancel_open(tenant, request.request_id)
        else:
            slots = ()
        return router_pb2.CancelResponse(cancelled_slots=slots)

    async def _left(self, caller: _Caller, batch: Batch, asking: _Asking | None) -> None:
        """A caller is gone: when nobody else is there, and it does not come back, its open slots end. Never raises."""
        left = self._attendance.leave(caller.rid, caller.ask_id)
        if left is Left.OTHERS:
            return
        keep_s = caller.keep_s if left is Left.LAST else 0.0
        if keep_s and not await self._attendance.deserted(caller.rid, caller.ask_id, keep_s):
            return
        if asking is None or await asking.ended():
            await self._cancel_open(batch.tenant, batch.request_id)

    async def _cancel_open(self, tenant: str, request_id: str) -> tuple[int, ...]:
        """Ends the open slots of a request that nobody waits for, fast and without their texts. Never raises."""
        try:
            async with asyncio.timeout(_CANCEL_S):
                return await self._router.cancel(tenant, request_id, with_text=False)
        except NotFound:
            return ()
        except (KevError, TimeoutError) as error:
            named = about(request_id=request_id)
            log.warning("open slots of a caller who left could not be cancelled: %s", error, extra=named)
            return ()

    async def _relay(
        self, request: router_pb2.AskRequest, batch: Batch, context: Context, span: traces.Span
    ) -> AsyncIterator[bytes]:
        """A relay that breaks leaves the request running: its reader may come back through the aggregator."""
        call = self._stream(
            aggregator_pb2.StreamRequest(request_id=batch.request_id, grouped=request.grouped, resume=request.resume),
            timeout=time_left(context),
            metadata=passed_on(context, span),
        )
        try:
            async for reply in call:
                yield reply
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise BusUnavailable(f"the aggregator does not answer; {batch.request_id} runs on") from error
            raise
        finally:
            call.cancel()


class _Asking:
    """The submit behind an ``Ask``: the stream may begin before the last question has found room."""

    def __init__(self, router: Router, batch: Batch, latest_ms: int | None) -> None:
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

    async def ended(self) -> bool:
        """Ends the submit; whether the request had come to stand.

        A submit that never stood may have named somebody else's request.
        """
        await ended(self._task)
        return self._stands.done()


class _Caller:
    """Whose Ask it is."""

    def __init__(self, request: router_pb2.AskRequest, batch: Batch) -> None:
        if request.keep_ms > MAX_KEEP_MS:
            raise InvalidArgument("keep_ms", f"must be 0 to {MAX_KEEP_MS}, got {request.keep_ms}")
        self.rid = rid_of(batch.tenant, batch.request_id)
        self.ask_id = request.ask_id or new_request_id()
        self.keep_s = request.keep_ms / 1000


_RUNNING: set[asyncio.Task[Submitted]] = set()
"""Submits whose ``Ask`` has ended; the loop itself holds tasks only weakly."""


def _seen(task: asyncio.Task[Submitted]) -> None:
    _RUNNING.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.debug("a submit ended after its stream: %s", error)


def _named(batch: Batch) -> Batch:
    """The batch with a request id, so that it can be cancelled whatever happens."""
    return batch if batch.request_id else msgspec.structs.replace(batch, request_id=new_request_id())
