"""What the HTTP door counts: ``kev_http_*``. Routes are labels, addresses are not."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from prometheus_client import Counter, Gauge, Histogram
from starlette.types import ASGIApp, Receive, Scope, Send

from kev.app.http.course import Course

LADDER = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60)

REQUESTS = Counter("kev_http_requests", "Requests, by route and status.", ["route", "status"])
SECONDS = Histogram("kev_http_request_seconds", "Request to the last byte of its answer.", ["route"], buckets=LADDER)
OPEN = Gauge("kev_http_open_requests", "Requests that are being answered.")
STALLED = Counter("kev_http_stalled_readers", "Connections ended because the caller read nothing for too long.")
NO_ROUTE = "none"


class Counted:
    """An application whose requests are counted."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything on as it is."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        course = Course(send)
        with OPEN.track_inprogress():
            try:
                await self._app(scope, receive, course.send)
            finally:
                route = route_of(scope)
                REQUESTS.labels(route, course.status).inc()
                SECONDS.labels(route).observe(course.seconds)


def route_of(scope: MutableMapping[str, Any]) -> str:
    """The route's pattern with its method: bounded, whatever callers ask for."""
    path = getattr(scope.get("route"), "path", None)
    return NO_ROUTE if path is None else f"{scope['method']} {path}"
