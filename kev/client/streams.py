"""Frames of a request as they come; a lost connection is resumed, nothing is repeated and nothing lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from typing import Any

import grpc

from kev.client.again import before_resume, before_retry
from kev.client.connection import Connection
from kev.client.progress import Progress
from kev.domain.errors import KevError
from kev.domain.ids import new_request_id
from kev.domain.question import Batch
from kev.domain.result import Frame, ResumePoint
from kev.telemetry import traces
from kev.v1 import aggregator_pb2, question_pb2, router_pb2
from kev.wire.question import batch_to
from kev.wire.result import frames_from, resume_to

KEEP_MS = 3000
"""How long the router waits for this client after a lost connection, before it cancels an Ask."""
_CANCEL_S = 5.0


async def followed(at: Connection, request_id: str, resume: Iterable[ResumePoint]) -> AsyncGenerator[Frame, None]:
    """A request's frames, from its start or from resume points. Leaving does not cancel it."""
    progress, failures = Progress(resume), 0
    while True:
        call = at.aggregator.Stream(_stream_request(request_id, progress), metadata=at.told())
        try:
            async for reply in call:
                failures = 0
                for frame in frames_from(reply):
                    if progress.take(frame):
                        yield frame
            return
        except grpc.aio.AioRpcError as error:
            failures += 1
            await before_resume(error, failures)
        finally:
            call.cancel()


class Asking:
    """One Ask. A reader that leaves says so: a connection that is merely lost is waited for.

    Args:
        batch: Has its request id.
        retries: How often the call is tried again before its first frame.
        span: Its trace.
    """

    def __init__(self, at: Connection, batch: Batch, retries: int, span: traces.Span) -> None:
        self._at, self._retries, self._span = at, retries, span
        self._request = router_pb2.AskRequest(
            batch=batch_to(batch), grouped=True, keep_ms=KEEP_MS, ask_id=new_request_id()
        )
        self._progress = Progress()

    async def frames(self) -> AsyncGenerator[Frame, None]:
        """The frames, to be iterated once. Leaving cancels what is unfinished.

        Raises:
            KevError: as the service answered.
        """
        left = True
        try:
            async with aclosing(self._asked()) as frames:
                async for frame in frames:
                    yield frame
            left = False
        except KevError:
            left = False
            raise
        finally:
            if left:
                await self._leave()

    async def _asked(self) -> AsyncGenerator[Frame, None]:
        """Tried again before its first frame, resumed after it."""
        tries = failures = 0
        while True:
            call = self._call(failures)
            try:
                async for reply in call:
                    failures = 0
                    for frame in frames_from(reply):
                        if self._progress.take(frame):
                            yield frame
                return
            except grpc.aio.AioRpcError as error:
                if self._progress.began:
                    failures += 1
                    await before_resume(error, failures)
                else:
                    await before_retry(error, tries, self._retries)
                    tries += 1
            finally:
                call.cancel()

    def _call(self, failures: int) -> Any:
        """The first call, or the one that goes on: at the router, which keeps the request for its caller, and every
        other time at an aggregator that has an address of its own."""
        metadata = self._at.told(self._span)
        if not self._progress.began:
            return self._at.router.Ask(self._request, metadata=metadata)
        request_id = self._request.batch.request_id
        if failures % 2 == 0 and self._at.two_addresses:
            return self._at.aggregator.Stream(_stream_request(request_id, self._progress), metadata=metadata)
        again = router_pb2.AskRequest(
            batch=question_pb2.Batch(request_id=request_id),
            grouped=True,
            keep_ms=KEEP_MS,
            ask_id=self._request.ask_id,
            resume=resume_to(self._progress.points()),
        )
        return self._at.router.Ask(again, metadata=metadata)

    async def _leave(self) -> None:
        """Says that this reader does not come back. Where that does not get through, the router waits in vain."""
        if not self._at.reaches_router:
            return  # closed meanwhile
        leaving = router_pb2.CancelRequest(request_id=self._request.batch.request_id, ask_id=self._request.ask_id)
        with suppress(grpc.aio.AioRpcError):
            await self._at.router.Cancel(leaving, timeout=_CANCEL_S, metadata=self._at.told())


def _stream_request(request_id: str, progress: Progress) -> aggregator_pb2.StreamRequest:
    points = resume_to(progress.points())
    return aggregator_pb2.StreamRequest(request_id=request_id, resume=points, grouped=True)
