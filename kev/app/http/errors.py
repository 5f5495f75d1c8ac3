"""Errors as JSON: one shape for all, from the error table."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from kev.config.complaint import complaint
from kev.domain import errors
from kev.telemetry.logs import hidden

log = logging.getLogger(__name__)
MAX_PROBLEMS = 50
"""Fields that one answer names."""
MAX_KEY_CHARS = 64
"""Of a key that a caller made up."""


class FieldProblem(BaseModel):
    """One field of the request, and what is allowed."""

    field: str
    message: str


class ErrorDetail(BaseModel):
    """What went wrong. ``reason`` is for programs, ``message`` for people."""

    reason: str
    message: str
    retryable: bool = False
    fields: list[FieldProblem] = []


class ErrorBody(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorDetail


class BadBody(Exception):
    """The request's body, or what stands behind its address, does not have the form that is asked for."""

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        super().__init__(problems[0].message)
        self.problems = list(problems)


class Refused(Exception):
    """Refused before the body was looked at: 408, 413, 415."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


def problems_of(
    error: ValidationError | RequestValidationError, form: type[BaseModel] | None = None
) -> list[FieldProblem]:
    """The first fields that pydantic complains about. What was given is not repeated.

    Args:
        form: What was read, if it is an object.
    """
    if isinstance(error, ValidationError):
        found, skip = error.errors(include_url=False, include_context=False, include_input=False), 0
    else:
        found, skip = list(error.errors()), 1  # "query" or "path": where the parameter stands
    return [
        FieldProblem(field=_path(item["loc"][skip:]), message=complaint(item["type"], item["msg"], item["loc"], form))
        for item in found[:MAX_PROBLEMS]
    ]


def detail_of(error: BaseException) -> tuple[int, ErrorDetail]:
    """HTTP status and body of an error by the error table. What is not in it gets an id; its text is only logged."""
    row = errors.row_for(error)
    message = hidden(error, log) if row is errors.INTERNAL else str(error)
    fields = []
    if isinstance(error, errors.InvalidArgument):
        field = error.field.removeprefix("batch.").replace("questions", "queries")
        fields = [FieldProblem(field=field, message=error.allowed)]
        message = f"{field}: {error.allowed}"
    return row.http, ErrorDetail(reason=row.reason, message=message, retryable=row.retryable, fields=fields)


def answer(status: int, detail: ErrorDetail, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error as a response."""
    return JSONResponse(ErrorBody(error=detail).model_dump(), status, headers)


def install(app: FastAPI) -> None:
    """Every error of the app leaves in the one shape."""

    async def known(request: Request, error: Exception) -> JSONResponse:
        status, detail = detail_of(error)
        headers = {}
        if isinstance(error, errors.Overloaded):
            headers["Retry-After"] = str(max(1, -(-error.retry_after_ms // 1000)))
        if isinstance(error, errors.Unauthenticated):
            headers["WWW-Authenticate"] = "Bearer"
        return answer(status, detail, headers)

    async def bad_body(request: Request, error: BadBody | RequestValidationError) -> JSONResponse:
        fields = error.problems if isinstance(error, BadBody) else problems_of(error)
        message = "; ".join(f"{item.field}: {item.message}" for item in fields[:5])
        return answer(422, ErrorDetail(reason="INVALID_ARGUMENT", message=message, fields=fields))

    async def refused(request: Request, error: Refused) -> JSONResponse:
        # Nobody reads the rest of that body: the connection ends with this answer.
        detail = ErrorDetail(reason=error.reason, message=str(error), retryable=error.status == 408)
        return answer(error.status, detail, {"Connection": "close"})

    async def plain(request: Request, error: HTTPException) -> JSONResponse:
        reason = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(error.status_code, "INVALID_ARGUMENT")
        return answer(
            error.status_code, ErrorDetail(reason=reason, message=str(error.detail)), dict(error.headers or {})
        )

    handlers: list[tuple[type[Exception], Any]] = [
        (errors.KevError, known),
        (BadBody, bad_body),
        (RequestValidationError, bad_body),
        (Refused, refused),
        (HTTPException, plain),
        (Exception, known),
    ]
    for kind, handler in handlers:
        app.add_exception_handler(kind, handler)


def _path(location: Sequence[str | int]) -> str:
    """``("queries", 0, "text")`` -> ``queries[0].text``."""
    parts = [part[:MAX_KEY_CHARS] if isinstance(part, str) else part for part in location]
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".") or "body"
