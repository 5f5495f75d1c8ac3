"""What the HTTP door says of a request, in the log and as a span. The body is never looked at."""

from __future__ import annotations

import logging
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kev.app.http.metrics import LEFT, route_of
from kev.telemetry import logs, traces

log = logging.getLogger(__name__)
_TOLD = logs.Told(log)
_QUIET = ("GET /healthz",)
"""Asked every few seconds by whoever watches over the service."""


class Told:
    """An application whose requests are told of. A caller's ``traceparent`` header is followed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything on as it is."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, began = LEFT, time.monotonic()

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        with traces.span("http request", _parent(scope)) as span:
            try:
                await self._app(scope, receive, told)
            finally:
                facts: dict[str, Any] = {"route": route_of(scope), "status": status}
                traces.note(span, **facts)
                if facts["route"] not in _QUIET:
                    _TOLD.say("a request ended", **facts, elapsed_ms=round((time.monotonic() - began) * 1000, 1))


def _parent(scope: Scope) -> str:
    if not traces.on():
        return ""
    name = traces.HEADER.encode()
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
