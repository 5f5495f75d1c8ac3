"""The door for plain HTTP: ``POST /v1/query`` and its neighbours."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from pydantic import Field
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from kev.app.backend import Backend
from kev.app.http import errors
from kev.app.http.bodies import QueryBody
from kev.app.http.contexts import LEFT, NewContextBody, context_routes
from kev.app.http.errors import ErrorBody, ErrorDetail
from kev.app.http.events import EVENTS_DOC, EventStream
from kev.app.http.requests import caller_of, only_known_parameters, read_query, while_there
from kev.app.http.results import CancelledBody, HealthBody, ResultsBody, results_body
from kev.domain.errors import NotFound
from kev.domain.ids import is_request_id
from kev.domain.question import MAX_QUESTIONS
from kev.domain.result import Frame

MAX_WAIT_MS = 600_000
KNOWN = [Depends(only_known_parameters)]
Slot = Annotated[int, Field(ge=0, lt=MAX_QUESTIONS)]
PROBLEMS: dict[int | str, dict[str, Any]] = {
    401: {"model": ErrorBody, "description": "No API key, or one that is not known"},
    404: {"model": ErrorBody, "description": "No such thing, or not the caller's"},
    408: {"model": ErrorBody, "description": "The body did not arrive in time"},
    409: {"model": ErrorBody, "description": "The request id names another batch, or it is not served here"},
    413: {"model": ErrorBody, "description": "Too large"},
    415: {"model": ErrorBody, "description": "Not JSON, or compressed"},
    422: {"model": ErrorBody, "description": "A mistake in the request; the fields are named"},
    429: {
        "model": ErrorBody,
        "description": "No room now, Retry-After says when; or as much is kept as may be (QUOTA_EXCEEDED)",
    },
    503: {"model": ErrorBody, "description": "Not available now"},
}
BODY = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/QueryBody"}}}}


def create_app(backend: Backend, version: str = "", *, body_timeout_s: float = 60.0) -> FastAPI:
    """The application in front of a backend, which stays the caller's to close.

    Args:
        body_timeout_s: Seconds that a request's body may take to arrive.
    """
    app = FastAPI(title="Kev", version=version or "0", summary=__doc__, redoc_url=None)
    errors.install(app)
    app.include_router(_routes(backend, body_timeout_s))
    app.include_router(context_routes(backend, body_timeout_s, PROBLEMS))
    _describe_body(app)
    return app


def _routes(backend: Backend, body_timeout_s: float) -> APIRouter:
    routes = APIRouter(responses=PROBLEMS)

    @routes.post(
        "/v1/query",
        response_model=ResultsBody,
        openapi_extra={"requestBody": BODY},
        description=EVENTS_DOC,
        dependencies=KNOWN,
    )
    async def ask(request: Request) -> Response:
        mine = caller_of(request, backend)
        try:
            query = await read_query(request, timeout_s=body_timeout_s)
            frames = mine.ask(query.batch)
            if not query.stream:
                return JSONResponse(await while_there(request.receive, _whole(mine, frames)))
            first = await while_there(request.receive, _first(frames))
        except ClientDisconnect:
            return Response(status_code=LEFT)
        return EventStream(first, frames, mine.wait)

    @routes.get("/v1/query/{request_id}", response_model=ResultsBody, dependencies=KNOWN)
    async def results(
        request: Request, request_id: str, wait_ms: Annotated[int, Query(ge=0, le=MAX_WAIT_MS)] = 0
    ) -> Response:
        """A request's results; with `wait_ms` it waits for open slots."""
        mine = caller_of(request, backend)
        _check(request_id)
        try:
            found = await while_there(request.receive, mine.wait(request_id, wait_ms / 1000))
        except ClientDisconnect:
            return Response(status_code=LEFT)
        return JSONResponse(results_body(request_id, found))

    @routes.delete("/v1/query/{request_id}", response_model=CancelledBody, dependencies=KNOWN)
    async def cancel(
        request: Request, request_id: str, slots: Annotated[list[Slot] | None, Query()] = None
    ) -> Response:
        """Cancels the open slots of a request, or those that are named."""
        mine = caller_of(request, backend)
        _check(request_id)
        ended = await mine.cancel(request_id, slots or ())
        return JSONResponse({"request_id": request_id, "cancelled_slots": list(ended)})

    @routes.get("/healthz", response_model=HealthBody)
    async def healthz() -> Response:
        """Whether questions would be answered now."""
        if await backend.healthy():
            return JSONResponse({"status": "ok"})
        return errors.answer(503, ErrorDetail(reason="NOT_READY", message="not ready", retryable=True))

    return routes


async def _first(frames: AsyncGenerator[Frame, None]) -> Frame:
    return await anext(frames)


async def _whole(backend: Backend, frames: AsyncGenerator[Frame, None]) -> dict[str, Any]:
    """Reads a request to its end. Whoever cancels this cancels the open slots."""
    request_id = ""
    async with aclosing(frames):
        async for frame in frames:
            request_id = frame.request_id
    return results_body(request_id, await backend.wait(request_id, 0.0))


def _check(request_id: str) -> None:
    if not is_request_id(request_id):
        raise NotFound("no such request")


def _describe_body(app: FastAPI) -> None:
    """The body is read by hand (limits come first), so its schema is added by hand."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schemas = made()["components"]["schemas"]
            for form in (QueryBody, NewContextBody):
                schema = form.model_json_schema(ref_template="#/components/schemas/{model}")
                schemas.update(schema.pop("$defs", {}))
                schemas[form.__name__] = schema
        return made()

    app.openapi = openapi  # type: ignore[method-assign]
