"""The error table on gRPC: exceptions to status with ``google.rpc`` details, and back."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from kev.domain import errors
from kev.telemetry.logs import hidden

log = logging.getLogger(__name__)
DOMAIN = "kev"
MAX_CHARS = 500
"""Most characters of a status text."""


def status_of(error: BaseException) -> status_pb2.Status:
    """The rich status of an error. An error outside the table gets an id; its text is only logged."""
    row = errors.row_for(error)
    text = hidden(error, log) if row is errors.INTERNAL else str(error)
    details = [_any(error_details_pb2.ErrorInfo(reason=row.reason, domain=DOMAIN))]
    if isinstance(error, errors.InvalidArgument):
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=_short(error.allowed))
        details.append(_any(error_details_pb2.BadRequest(field_violations=[violation])))
    if isinstance(error, errors.Overloaded):
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(error.retry_after_ms)
        details.append(_any(error_details_pb2.RetryInfo(retry_delay=delay)))
    return status_pb2.Status(code=code_pb2.Code.Value(row.grpc), message=_short(text), details=details)


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: BaseException) -> NoReturn:
    """Ends the call with the error's status. Raises, as ``context.abort`` does."""
    status = rpc_status.to_status(status_of(error))
    await context.abort(status.code, status.details, status.trailing_metadata)
    raise AssertionError("abort returned")


def error_from(error: grpc.aio.AioRpcError) -> errors.KevError:
    """The domain's error of a failed call, for clients."""
    rich: status_pb2.Status | None = rpc_status.from_call(error)  # type: ignore[arg-type]  # reads code, details, metadata only
    info, violation, retry = (
        error_details_pb2.ErrorInfo(),
        error_details_pb2.BadRequest(),
        error_details_pb2.RetryInfo(),
    )
    for detail in rich.details if rich else ():
        for kind in (info, violation, retry):
            if detail.Is(kind.DESCRIPTOR):
                detail.Unpack(kind)
    message = error.details() or error.code().name
    if violation.field_violations:
        first = violation.field_violations[0]
        return errors.InvalidArgument(first.field, first.description)
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and info.reason == "OVERLOADED":
        return errors.Overloaded(message, retry.retry_delay.ToMilliseconds())
    for row in errors.TABLE:
        if row.reason == info.reason and row.error not in (errors.InvalidArgument, errors.Overloaded):
            known: type[errors.KevError] = row.error  # type: ignore[assignment]
            return known(message)
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return errors.BusUnavailable(f"no answer from the service ({message})")
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.TooSlow(message)
    return errors.KevError(f"{error.code().name}: {message}")


def _short(text: str) -> str:
    """A status travels in headers, which hold some thousand bytes; a text may repeat what a caller sent."""
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + "…"


def _any(message: object) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)  # type: ignore[arg-type]
    return packed
