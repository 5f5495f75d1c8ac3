"""The asynchronous client."""

from __future__ import annotations

import asyncio
import copy
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Self, Unpack

import grpc

from kev.client import arguments
from kev.client.again import before_resume, retried
from kev.client.connection import Connection
from kev.client.contexts import ContextCalls
from kev.client.queries import Options, Queries, batch_of
from kev.client.streams import Asking, followed
from kev.domain.ids import new_request_id
from kev.domain.question import Batch
from kev.domain.result import Frame, ResumePoint, SlotResult
from kev.telemetry import traces
from kev.v1 import aggregator_pb2, router_pb2
from kev.wire.question import batch_to
from kev.wire.result import result_from

WAIT_CHUNK_S = 30.0
"""One call of a long wait."""
_REPLY_S = 10.0
KEY_VARIABLE = "KEV_API_KEY"


class AsyncClient(ContextCalls):
    """Asks a running cluster, over gRPC. Use it in one event loop; close it at the end.

    Args:
        address: ``HOST:PORT`` of the router, with ``tls://`` before it if it encrypts. It serves results too.
        aggregator: Reads results there instead, one hop less.
        retries: How often a submit that found no room, or no service, is
            tried again, after the time that the service named. Safe: the
            request id keeps a batch from running twice.
        api_key: Says which tenant calls; None takes the environment's ``KEV_API_KEY``. Never shown.
        ca: PEM file of the authorities that ``tls://`` addresses trust; None takes the environment's ``KEV_TLS_CA``,
            and without that gRPC's own list of public ones.

    Raises:
        InvalidArgument: names the argument and what is allowed.
    """

    def __init__(
        self,
        address: str,
        *,
        aggregator: str | None = None,
        retries: int = 0,
        api_key: str | None = None,
        ca: str | None = None,
    ) -> None:
        key = os.environ.get(KEY_VARIABLE, "") if api_key is None else api_key
        router = arguments.address("address", address)
        results = arguments.address("aggregator", aggregator) if aggregator else router
        self._at = Connection(router, results, key, arguments.authorities(ca, router, results))
        self._retries = retries

    def calling_as(self, api_key: str) -> Self:
        """The same client with another key (empty for none), over the same connections."""
        other = copy.copy(self)
        other._at = self._at.calling_as(api_key)
        return other

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connections."""
        await self._at.close()

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
            reply = await self._retried(lambda: self._at.router.Submit(request, metadata=self._at.told(span)))
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
        request_id, timeout = arguments.request_id(request_id), arguments.seconds(timeout)
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
                await before_resume(error, failures, hurried=until is not None and loop.time() >= until)
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
            async with aclosing(Asking(self._at, batch, self._retries, span).frames()) as frames:
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
        async with aclosing(
            followed(self._at, arguments.request_id(request_id), arguments.resume_points(resume))
        ) as frames:
            async for frame in frames:
                yield frame

    async def cancel(self, request_id: str, slots: Sequence[int] = ()) -> tuple[int, ...]:
        """Ends open slots as cancelled, all of them if none is named; returns those that this call ended.

        Raises:
            NotFound: no such request.
            InvalidArgument: it has no such slot.
        """
        request = router_pb2.CancelRequest(request_id=arguments.request_id(request_id), slots=arguments.slots(slots))
        reply = await self._retried(lambda: self._at.router.Cancel(request, metadata=self._at.told()))
        return tuple(reply.cancelled_slots)

    async def _retried(self, call: Callable[[], Awaitable[Any]]) -> Any:
        return await retried(call, self._retries)

    async def _results(self, request_id: str, wait_s: float) -> aggregator_pb2.GetResultsResponse:
        request = aggregator_pb2.GetResultsRequest(request_id=request_id, wait_ms=int(wait_s * 1000))
        reply: aggregator_pb2.GetResultsResponse = await self._at.aggregator.GetResults(
            request, timeout=wait_s + _REPLY_S, metadata=self._at.told()
        )
        return reply


def _named(queries: Queries, options: Options) -> Batch:
    """The batch of a call. It gets its id here, so that a repeated call asks for the same request."""
    options["request_id"] = options.get("request_id") or new_request_id()
    return batch_of(queries, **options)
