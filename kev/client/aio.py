"""The asynchronous client."""

from __future__ import annotations

import asyncio
import copy
import itertools
import os
import random
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Any, Self, Unpack

import grpc

from kev.client import fields
from kev.client.contexts import ContextCalls
from kev.client.progress import Progress
from kev.client.queries import Options, Queries, batch_of
from kev.domain.errors import BusUnavailable, KevError, Overloaded
from kev.domain.ids import new_request_id
from kev.domain.question import Batch
from kev.domain.result import Frame, ResumePoint, SlotResult
from kev.domain.tenants import checked_key, header_of
from kev.telemetry import traces
from kev.v1 import aggregator_pb2, aggregator_pb2_grpc, context_pb2_grpc, question_pb2, router_pb2, router_pb2_grpc
from kev.wire.options import open_channel
from kev.wire.question import batch_to
from kev.wire.result import frames_from, result_from, resume_to
from kev.wire.status import error_from

MAX_RESUMES = 7
"""Failures in a row, with no frame in between, after which a stream or a wait gives up: about 8 seconds."""
WAIT_CHUNK_S = 30.0
"""One call of a long wait."""
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED, grpc.StatusCode.CANCELLED)
_CANCEL_S = 5.0
KEEP_MS = 3000
"""How long the router waits for this client after a lost connection, before it cancels an Ask."""
_REPLY_S = 10.0
KEY_VARIABLE = "KEV_API_KEY"


class AsyncClient(ContextCalls):
    """Asks a running cluster, over gRPC. Use it in one event loop; close it at the end.

    Args:
        address: ``host:port`` of the router. It serves results too.
        aggregator: Reads results there instead, one hop less.
        retries: How often a submit that found no room, or no service, is
            tried again, after the time that the service named. Safe: the
            request id keeps a batch from running twice.
        api_key: Says which tenant calls; None takes the environment's ``KEV_API_KEY``. Never shown.
    """

    def __init__(
        self, address: str, *, aggregator: str | None = None, retries: int = 0, api_key: str | None = None
    ) -> None:
        self._authorization = header_of(checked_key(os.environ.get(KEY_VARIABLE, "") if api_key is None else api_key))
        self._addresses = (address, aggregator or address)
        self._retries = retries
        self._channels: dict[str, grpc.aio.Channel] = {}

    def calling_as(self, api_key: str) -> Self:
        """The same client with another key (empty for none), over the same connections."""
        other = copy.copy(self)
        other._authorization = header_of(checked_key(api_key))
        return other

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connections."""
        channels = tuple(self._channels.values())
        self._channels.clear()
        for channel in channels:
            await channel.close(None)

    async def submit(
        self,
        queries: Queries,
        **options: Unpack[Options],
    ) -> str:
        """Submits a batch; it runs on when the client leaves.

        Args:
            queries: Strings, mappings or ``Question`` objects, at most 1,000.
            options: See ``Options``: ``isolation``, ``max_parallel``, ``max_tokens`` and so on.

        Returns:
            The request id.

        Raises:
            InvalidArgument: names the field.
            Overloaded: no room, and no retries left.
            KevError: as the service answered.
        """
        batch = _named(queries, options)
        request = router_pb2.SubmitRequest(batch=batch_to(batch))
        with traces.span("client submit", request_id=batch.request_id) as span:
            reply = await self._retried(lambda: self._router.Submit(request, metadata=self._told(span)))
        return str(reply.request_id)

    async def wait(self, request_id: str, timeout: float | None = None) -> list[SlotResult]:
        """Waits until every slot has ended; results in the batch's result mode.

        Args:
            timeout: Seconds; then slots that have not ended are ``pending``.
                0 polls, None waits for the end (each slot has a deadline).

        Raises:
            NotFound: no such request.
            BusUnavailable: no service answered for a while.
        """
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        failures = 0
        while True:
            left = WAIT_CHUNK_S if until is None else max(0.0, until - loop.time())
            chunk = min(left, WAIT_CHUNK_S)
            try:
                reply = await self._results(request_id, chunk)
            except grpc.aio.AioRpcError as error:
                failures += 1
                await _before_resume(error, failures)
                continue
            failures = 0
            if reply.complete or (until is not None and left <= chunk):
                return [result_from(result) for result in reply.results]

    async def ask(
        self,
        queries: Queries,
        **options: Unpack[Options],
    ) -> AsyncGenerator[Frame, None]:
        """Submits a batch and streams its answers. Leaving the iterator cancels
        what is unfinished, unless somebody else asks under the same request id. A lost connection is
        resumed. Arguments and errors as ``submit``."""
        batch = _named(queries, options)
        span = traces.begin("client ask", request_id=batch.request_id)
        try:
            async with aclosing(self._whole(batch, span)) as frames:
                async for frame in frames:
                    yield frame
        finally:
            traces.end(span, sys.exception())

    async def stream(self, request_id: str, resume: Iterable[ResumePoint] = ()) -> AsyncGenerator[Frame, None]:
        """Follows a request, from its start or from resume points. A lost
        connection is resumed: nothing is repeated, nothing lost. Leaving the
        iterator does not cancel the request.

        Raises:
            NotFound: no such request.
            InvalidArgument: a resume point cannot be one of this request.
            BusUnavailable: no service answered for a while.
        """
        async with aclosing(self._followed(request_id, Progress(_checked(resume)))) as frames:
            async for frame in frames:
                yield frame

    async def cancel(self, request_id: str, slots: Sequence[int] = ()) -> tuple[int, ...]:
        """Ends open slots as cancelled, all of them if none is named; returns those that this call ended.

        Raises:
            NotFound: no such request.
            InvalidArgument: it has no such slot.
        """
        slots = [fields.whole("slots", slot, 0, fields.MAX_UINT32) for slot in slots]
        request = router_pb2.CancelRequest(request_id=request_id, slots=slots)
        return tuple((await self._retried(lambda: self._router.Cancel(request, metadata=self._told()))).cancelled_slots)

    # -- inside --------------------------------------------------------------------
    async def _whole(self, batch: Batch, span: traces.Span) -> AsyncGenerator[Frame, None]:
        """An Ask. A reader that leaves says so: a connection that is merely lost is waited for."""
        request = router_pb2.AskRequest(batch=batch_to(batch), grouped=True, keep_ms=KEEP_MS, ask_id=new_request_id())
        left = True
        try:
            async with aclosing(self._asked(request, Progress(), span)) as frames:
                async for frame in frames:
                    yield frame
            left = False
        except KevError:
            left = False
            raise
        finally:
            if left:
                await self._leave(request)

    async def _asked(
        self, request: router_pb2.AskRequest, progress: Progress, span: traces.Span
    ) -> AsyncGenerator[Frame, None]:
        """Tried again before its first frame, resumed after it."""
        tries = failures = 0
        while True:
            call = self._ask_call(request, progress, failures, span)
            try:
                async for reply in call:
                    failures = 0
                    for frame in frames_from(reply):
                        if progress.take(frame):
                            yield frame
                return
            except grpc.aio.AioRpcError as error:
                if progress.began:
                    failures += 1
                    await _before_resume(error, failures)
                else:
                    await self._before_retry(error, tries)
                    tries += 1
            finally:
                call.cancel()

    def _ask_call(self, request: router_pb2.AskRequest, progress: Progress, failures: int, span: traces.Span) -> Any:
        """The first call, or the one that goes on: at the router, which keeps the request for its caller, and every
        other time at an aggregator that has an address of its own."""
        metadata = self._told(span)
        if not progress.began:
            return self._router.Ask(request, metadata=metadata)
        request_id, points = request.batch.request_id, resume_to(progress.points())
        if failures % 2 == 0 and self._addresses[0] != self._addresses[1]:
            again = aggregator_pb2.StreamRequest(request_id=request_id, resume=points, grouped=True)
            return self._aggregator.Stream(again, metadata=metadata)
        named = question_pb2.Batch(request_id=request_id)
        return self._router.Ask(
            router_pb2.AskRequest(
                batch=named, grouped=True, keep_ms=request.keep_ms, ask_id=request.ask_id, resume=points
            ),
            metadata=metadata,
        )

    async def _leave(self, request: router_pb2.AskRequest) -> None:
        """Says that this reader does not come back. Where that does not get through, the router waits in vain."""
        if self._addresses[0] not in self._channels:
            return  # closed meanwhile
        leaving = router_pb2.CancelRequest(request_id=request.batch.request_id, ask_id=request.ask_id)
        with suppress(grpc.aio.AioRpcError):
            await self._router.Cancel(leaving, timeout=_CANCEL_S, metadata=self._told())

    async def _followed(
        self, request_id: str, progress: Progress, span: traces.Span = None
    ) -> AsyncGenerator[Frame, None]:
        failures = 0
        while True:
            points = resume_to(progress.points())
            request = aggregator_pb2.StreamRequest(request_id=request_id, resume=points, grouped=True)
            call = self._aggregator.Stream(request, metadata=self._told(span))
            try:
                async for reply in call:
                    failures = 0
                    for frame in frames_from(reply):
                        if progress.take(frame):
                            yield frame
                return
            except grpc.aio.AioRpcError as error:
                failures += 1
                await _before_resume(error, failures)
            finally:
                call.cancel()

    async def _retried(self, call: Callable[[], Awaitable[Any]]) -> Any:
        for tries in itertools.count():
            try:
                return await call()
            except grpc.aio.AioRpcError as error:
                await self._before_retry(error, tries)
        raise AssertionError("unreachable")

    async def _before_retry(self, error: grpc.aio.AioRpcError, tries: int) -> None:
        """Waits as long as the service asks for; raises when there is no retry left, or it would not help."""
        known = error_from(error)
        if tries >= self._retries or not isinstance(known, Overloaded | BusUnavailable):
            raise known from None
        named_s = known.retry_after_ms / 1000 if isinstance(known, Overloaded) else 0.0
        await asyncio.sleep(max(named_s, 0.1) * random.uniform(1.0, 1.5))

    async def _results(self, request_id: str, wait_s: float) -> aggregator_pb2.GetResultsResponse:
        request = aggregator_pb2.GetResultsRequest(request_id=request_id, wait_ms=int(wait_s * 1000))
        reply: aggregator_pb2.GetResultsResponse = await self._aggregator.GetResults(
            request, timeout=wait_s + _REPLY_S, metadata=self._told()
        )
        return reply

    def _told(self, span: traces.Span | None = None) -> tuple[tuple[str, str], ...]:
        """What goes along with a call: who calls, and its trace."""
        who = (("authorization", self._authorization),) if self._authorization else ()
        return (*who, *(traces.metadata(span) or ()))

    @property
    def _context_stub(self) -> Any:
        return context_pb2_grpc.ContextServiceStub(self._channel(self._addresses[0]))  # type: ignore[no-untyped-call]

    @property
    def _router(self) -> Any:
        return router_pb2_grpc.RouterServiceStub(self._channel(self._addresses[0]))  # type: ignore[no-untyped-call]

    @property
    def _aggregator(self) -> Any:
        return aggregator_pb2_grpc.AggregatorServiceStub(self._channel(self._addresses[1]))  # type: ignore[no-untyped-call]

    def _channel(self, address: str) -> grpc.aio.Channel:
        """Opened on first use, because it belongs to the running loop."""
        if address not in self._channels:
            self._channels[address] = open_channel(address)
        return self._channels[address]


def _checked(resume: Iterable[ResumePoint]) -> tuple[ResumePoint, ...]:
    """Resume points that the wire can carry."""
    points = tuple(resume)
    for point in points:
        for name in ("slot", "attempt", "text_offset"):
            fields.whole(f"resume.{name}", getattr(point, name), 0, fields.MAX_UINT32)
    return points


def _named(queries: Queries, options: Options) -> Batch:
    """The batch of a call. It gets its id here, so that a repeated call asks for the same request."""
    options["request_id"] = options.get("request_id") or new_request_id()
    return batch_of(queries, **options)


async def _before_resume(error: grpc.aio.AioRpcError, failures: int) -> None:
    """Waits a little longer each time; raises when resuming would not help, or enough was tried."""
    if error.code() not in _LOST or failures > MAX_RESUMES:
        raise error_from(error) from None
    await asyncio.sleep(min(2.0, 0.1 * 2 ** (failures - 1)) * random.uniform(0.8, 1.2))
