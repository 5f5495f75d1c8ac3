"""The one error table: exception, gRPC code, HTTP status, reason, retryable.

Anything that is not in the table is INTERNAL: it gets an id, its text is
logged and never sent.
"""

from __future__ import annotations

from dataclasses import dataclass


class KevError(Exception):
    """An error whose text may be shown to the caller."""


class InvalidArgument(KevError):
    """The caller's mistake; the text names the field and what is allowed."""

    def __init__(self, field: str, allowed: str) -> None:
        super().__init__(f"{field}: {allowed}")
        self.field = field
        self.allowed = allowed


class NotFound(KevError):
    """No such thing, or not this tenant's."""


class Unauthenticated(KevError):
    """No API key, or one that is not known."""


class AlreadyUsed(KevError):
    """The request id names a different batch."""


class Overloaded(KevError):
    """No room now; ``retry_after_ms`` says when to try again."""

    def __init__(self, detail: str, retry_after_ms: int = 1000) -> None:
        super().__init__(detail)
        self.retry_after_ms = retry_after_ms


class QuotaExceeded(KevError):
    """The tenant holds as much as it may; the text says of what."""


class TooSlow(KevError):
    """The caller's deadline passed first."""


class NotServed(KevError):
    """This deployment does not serve what was asked, e.g. a weaker isolation level."""


class BusUnavailable(KevError):
    """The broker does not answer."""


class FellBehind(KevError):
    """A reader was cut off because it read too slowly; it can resume."""


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One line of the table. ``grpc`` is a ``grpc.StatusCode`` name."""

    error: type[Exception]
    grpc: str
    http: int
    reason: str
    retryable: bool


TABLE: tuple[ErrorRow, ...] = (
    ErrorRow(InvalidArgument, "INVALID_ARGUMENT", 422, "INVALID_ARGUMENT", False),
    ErrorRow(NotFound, "NOT_FOUND", 404, "NOT_FOUND", False),
    ErrorRow(Unauthenticated, "UNAUTHENTICATED", 401, "UNAUTHENTICATED", False),
    ErrorRow(AlreadyUsed, "ALREADY_EXISTS", 409, "REQUEST_ID_USED", False),
    ErrorRow(Overloaded, "RESOURCE_EXHAUSTED", 429, "OVERLOADED", True),
    ErrorRow(QuotaExceeded, "RESOURCE_EXHAUSTED", 429, "QUOTA_EXCEEDED", False),
    ErrorRow(TooSlow, "DEADLINE_EXCEEDED", 504, "DEADLINE_EXCEEDED", True),
    ErrorRow(NotServed, "FAILED_PRECONDITION", 409, "NOT_SERVED", False),
    ErrorRow(BusUnavailable, "UNAVAILABLE", 503, "BUS_UNAVAILABLE", True),
    ErrorRow(FellBehind, "ABORTED", 409, "FELL_BEHIND", True),
)
INTERNAL = ErrorRow(Exception, "INTERNAL", 500, "INTERNAL", False)


def row_for(error: BaseException) -> ErrorRow:
    """The table's line for ``error``; ``INTERNAL`` if it has none."""
    return next((row for row in TABLE if isinstance(error, row.error)), INTERNAL)
