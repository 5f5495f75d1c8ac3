"""What the HTTP door says of a request, in the log and as a span. The body is never looked at."""

from __future__ import annotations

import logging
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from kev.app.http.course import Course
from kev.app.http.metrics import route_of
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
        course = Course(send)
        with traces.span("http request", _parent(scope)) as span:
            try:
                await self._app(scope, receive, course.send)
            finally:
                facts: dict[str, Any] = {"route": route_of(scope), "status": course.status}
                traces.note(span, **facts)
                if facts["route"] not in _QUIET:
                    _TOLD.say("a request ended", **facts, elapsed_ms=round(course.seconds * 1000, 1))


def _parent(scope: Scope) -> str:
    if not traces.on():
        return ""
    name = traces.HEADER.encode()
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
