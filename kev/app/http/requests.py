"""Reading a request's body with limits, and noticing that the caller has left."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from kev.app.backend import Backend
from kev.app.http.bodies import Body, QueryBody
from kev.app.http.errors import MAX_KEY_CHARS, MAX_PROBLEMS, BadBody, FieldProblem, Refused, problems_of
from kev.app.http.surrogates import whole_characters
from kev.domain.question import Batch

T = TypeVar("T")
B = TypeVar("B", bound=Body)
MAX_BODY_BYTES = 32 * 1024 * 1024
MOST_DROPPED_BYTES = 2 * MAX_BODY_BYTES
LISTS = ("slots",)
"""Parameters that may be given more than once."""


class Query(NamedTuple):
    """What a caller asks, and whether the answer is to be streamed."""

    batch: Batch
    stream: bool


def caller_of(request: Request, backend: Backend) -> Backend:
    """The backend for whoever sent the request.

    Raises:
        Unauthenticated: no API key, or one that is not known.
    """
    return backend.calling(request.headers.get("authorization", ""))


def only_known_parameters(request: Request) -> None:
    """For routes: refuses what stands behind the ``?`` and is not read; a ``slot`` for ``slots`` would cancel all.
    So is one that is given again: only its last value would be.

    Raises:
        BadBody: names the parameter and what is allowed.
    """
    allowed = [field.alias for field in request.scope["route"].dependant.query_params]
    unknown = [name for name in request.query_params if name not in allowed]
    if unknown:
        told = f"unknown parameter; allowed: {', '.join(allowed) or 'none'}"
        raise BadBody([FieldProblem(field=name[:MAX_KEY_CHARS], message=told) for name in unknown[:MAX_PROBLEMS]])
    given = Counter(name for name, _ in request.query_params.multi_items() if name not in LISTS)
    if again := [name for name, times in given.items() if times > 1]:
        raise BadBody([FieldProblem(field=name, message="must be given once") for name in again])


async def read_query(request: Request, most: int = MAX_BODY_BYTES, timeout_s: float = 60.0) -> Query:
    """The batch in the body; arguments and errors as ``read_body``."""
    body = await read_body(request, QueryBody, most, timeout_s)
    return Query(await asyncio.to_thread(body.batch), body.stream)


async def read_body(request: Request, form: type[B], most: int = MAX_BODY_BYTES, timeout_s: float = 60.0) -> B:
    """The body. A long one is read in a thread, so that others do not wait for it.

    Args:
        most: Bytes that a body may have.
        timeout_s: Seconds that it may take to arrive.

    Raises:
        Refused: 415 for what is compressed, or does not say it is JSON (a web
            page of somebody else can send anything else unasked), 413 for too much of it, 408
            for what does not end.
        BadBody, InvalidArgument: names the field and what is allowed.
    """
    try:
        async with asyncio.timeout(timeout_s):
            body = await _read(request, most)
    except TimeoutError:
        raise Refused(408, "TIMEOUT", f"the body did not arrive within {timeout_s:g} s") from None
    try:
        return await asyncio.to_thread(lambda: form.model_validate_json(whole_characters(body)))
    except ValidationError as error:
        raise BadBody(problems_of(error, form)) from None


async def _read(request: Request, most: int) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        await _let_in(request, 0)
        told = f"content-type must be application/json, got {kind[:80] or 'none'}"
        raise Refused(415, "UNSUPPORTED_MEDIA_TYPE", told)
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        await _let_in(request, 0)
        raise Refused(415, "UNSUPPORTED_MEDIA_TYPE", f"content-encoding must be identity, got {coding[:80] or 'none'}")
    body = await _let_in(request, most)
    if body is None:
        raise Refused(413, "TOO_LARGE", f"the body must be at most {most} bytes")
    return body


async def _let_in(request: Request, most: int) -> bytes | None:
    """The body, or None if it is longer.

    What is too much is still read, for a while, and dropped: many callers look for an answer only when they have sent
    everything, and an end of the connection before that would take the answer with it. A caller that waits to be told
    to send is not told.
    """
    length = request.headers.get("content-length", "0")
    too_much = length.isdecimal() and int(length) > most
    if too_much and request.headers.get("expect"):
        return None
    body, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        too_much = too_much or size > most
        if not too_much:
            body += chunk
        elif size > most + MOST_DROPPED_BYTES:
            break
    return None if too_much else bytes(body)


async def gone(receive: Receive) -> None:
    """Returns when the caller has left. Only after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_there(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Runs ``work`` as long as the caller is there; cancels it, and waits for its clean-up, when it leaves.

    Raises:
        ClientDisconnect: it has left.
    """
    task = asyncio.create_task(work)
    left = asyncio.create_task(gone(receive))
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for one in (task, left):
            one.cancel()
        await asyncio.gather(task, left, return_exceptions=True)
