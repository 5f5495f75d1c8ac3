"""``/v1/contexts``: documents that chosen questions read."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from kev.app.backend import Backend
from kev.app.http.bodies import Body
from kev.app.http.requests import caller_of, only_known_parameters, read_body

LEFT = 499
"""Status of a request whose caller has left: nobody reads it but the access log."""


class NewContextBody(Body):
    """A document to keep."""

    name: str = Field(description="1 to 128 letters, digits and . _ : -; an existing one of that name is replaced.")
    text: str = Field(description="The document.")
    ttl_ms: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = Field(
        None, description="How long it is kept; without it, until it is deleted."
    )


class ContextBody(BaseModel):
    """What is known of a context."""

    name: str
    tokens: int
    digest: str = Field(description="SHA-256 of its tokens.")
    created_ms: int
    expires_ms: int = Field(description="0 for one that does not expire.")


class ContextsBody(BaseModel):
    """The tenant's contexts by name."""

    contexts: list[ContextBody]


BODY = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/NewContextBody"}}}}


def context_routes(backend: Backend, body_timeout_s: float, problems: dict[int | str, dict[str, Any]]) -> APIRouter:
    """The routes in front of a backend."""
    routes = APIRouter(responses=problems, dependencies=[Depends(only_known_parameters)])

    @routes.post("/v1/contexts", response_model=ContextBody, status_code=201, openapi_extra={"requestBody": BODY})
    async def create(request: Request) -> Response:
        """Keeps a document for questions that name it; 200 if it took the place of another."""
        mine = caller_of(request, backend)
        try:
            body = await read_body(request, NewContextBody, timeout_s=body_timeout_s)
        except ClientDisconnect:
            return Response(status_code=LEFT)
        made = await mine.create_context(body.name, body.text, body.ttl_ms)
        return JSONResponse(_told(made), 200 if made.replaced else 201)

    @routes.get("/v1/contexts", response_model=ContextsBody)
    async def listed(request: Request) -> Response:
        """The caller's contexts by name."""
        found = await caller_of(request, backend).contexts()
        return JSONResponse({"contexts": [_told(context) for context in found]})

    @routes.delete("/v1/contexts/{name}", status_code=204)
    async def delete(request: Request, name: str) -> Response:
        """Ends a context: no new question may read it."""
        await caller_of(request, backend).delete_context(name)
        return Response(status_code=204)

    return routes


def _told(context: Any) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(context)
    del told["replaced"]
    return told
