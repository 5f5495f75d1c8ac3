"""A batch's frames as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kev.app.http.errors import detail_of
from kev.app.http.requests import while_there
from kev.app.http.results import results_body, slot_body
from kev.domain.result import Frame, SlotResult

FetchResults = Callable[[str, float | None], Awaitable[list[SlotResult]]]
KEEP_ALIVE_S = 15.0
EVENTS_DOC = (
    "With `stream` the answer is `text/event-stream`: `delta` events with pieces of text (`reset` says that a slot "
    "starts again), a `result` event when a slot ends, and at last `done` with all results in the result mode, "
    "or `error`."
)


def event(name: str, data: Any) -> bytes:
    """One event of the stream."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def frame_event(frame: Frame) -> bytes:
    """A piece of text, or the end of a slot with its last piece."""
    body: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(frame, result=None))
    if frame.result is None:
        del body["result"]
        return event("delta", body)
    body["result"] = slot_body(frame.result)
    return event("result", body)


class EventStream(Response):
    """Streams frames until they end or the caller leaves; then the frames are closed.

    Args:
        first: The first frame, already taken: errors before it were answered with their own status.
        results: Fetches the results in their order, for the ``done`` event.
    """

    media_type = "text/event-stream"

    def __init__(self, first: Frame, frames: AsyncGenerator[Frame, None], results: FetchResults) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._first = first
        self._frames = frames
        self._results = results

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response."""
        with suppress(ClientDisconnect):
            await while_there(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        async with aclosing(self._frames):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for chunk in with_keep_alive(self._events(), KEEP_ALIVE_S):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[bytes]:
        request_id = self._first.request_id
        try:
            yield frame_event(self._first)
            async for frame in self._frames:
                yield frame_event(frame)
            yield event("done", results_body(request_id, await self._results(request_id, 0.0)))
        except Exception as error:  # the status line is out: the error is the last event
            yield event("error", detail_of(error)[1].model_dump())


async def with_keep_alive(chunks: AsyncIterator[bytes], every_s: float) -> AsyncIterator[bytes]:
    """The chunks, and a comment whenever nothing came for ``every_s``: proxies drop silent connections."""
    pending: asyncio.Task[bytes | None] | None = None
    try:
        while True:
            pending = pending or asyncio.create_task(_next(chunks))
            done, _ = await asyncio.wait({pending}, timeout=every_s)
            if not done:
                yield b": keep-alive\n\n"
                continue
            chunk, pending = pending.result(), None
            if chunk is None:
                return
            yield chunk
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)
