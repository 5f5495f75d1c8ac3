"""Checks of what callers say besides queries: which request, how long, which slots, from where on, which document."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from math import inf
from numbers import Real
from typing import Any

from kev.client import fields
from kev.domain.errors import InvalidArgument
from kev.domain.result import ResumePoint
from kev.wire import tls

CA_VARIABLE = "KEV_TLS_CA"
"""The same as the setting ``tls.ca``."""


def request_id(value: object) -> str:
    """A request's name; whether there is such a request is found out elsewhere."""
    return fields.string("request_id", value)


def address(name: str, value: object) -> str:
    """Where a service is; whether anything answers there is found out at the first call."""
    if not isinstance(value, str) or not value.strip() or ":" not in tls.target_of(value)[0]:
        raise InvalidArgument(name, f"must be HOST:PORT, or tls://HOST:PORT; got {fields.shown(value)}")
    return value


def authorities(value: object, *addresses: str) -> str:
    """Path of the certificates of the authorities that calls to these addresses trust; empty for none."""
    if value and not any(tls.target_of(address)[1] for address in addresses):  # or it would be thought encrypted
        raise InvalidArgument("ca", f"is for tls://HOST:PORT; calls to {addresses[0]} are not encrypted")
    path = os.environ.get(CA_VARIABLE, "") if value is None else value
    if not isinstance(path, str | os.PathLike):
        raise InvalidArgument("ca", f"must be the path of a PEM file; got {fields.shown(value)}")
    try:
        tls.authorities(os.fspath(path))
    except ValueError as error:
        raise InvalidArgument("ca", str(error)) from None
    return str(os.fspath(path))


def seconds(value: object) -> float | None:
    """How long to wait: None (or infinity) to the end, nothing below 0 is less than 0."""
    if value is None:
        return None
    given: Any = value
    if isinstance(value, bool) or not isinstance(value, Real) or given != given:
        raise InvalidArgument("timeout", f"must be seconds, or None for no limit; got {fields.shown(value)}")
    try:
        return None if given == inf else max(0.0, float(given))
    except OverflowError:  # a whole number beyond all floats
        return None if given > 0 else 0.0


def slots(value: Sequence[int]) -> tuple[int, ...]:
    """Slots of a request."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise InvalidArgument("slots", f"must be a list of slots; got {fields.shown(value)}")
    return tuple(fields.whole("slots", slot, 0, fields.MAX_UINT32) for slot in value)


def resume_points(value: Iterable[ResumePoint]) -> tuple[ResumePoint, ...]:
    """Where a reader stands, in numbers that the wire can carry."""
    if not isinstance(value, Iterable):
        raise InvalidArgument("resume", f"must be a list of ResumePoint; got {fields.shown(value)}")
    points = []
    for point in value:
        if not isinstance(point, ResumePoint):
            raise InvalidArgument("resume", f"must be a list of ResumePoint; got {fields.shown(point)} in it")
        points.append(ResumePoint(*(_place(point, name) for name in ("slot", "attempt", "text_offset"))))
    return tuple(points)


def _place(point: ResumePoint, name: str) -> int:
    return fields.whole(f"resume.{name}", getattr(point, name), 0, fields.MAX_UINT32)


def context(name: object, text: object, ttl_ms: object) -> tuple[str, str, int | None]:
    """A document to keep, as ``create_context`` takes it."""
    time = None if ttl_ms is None else fields.whole("ttl_ms", ttl_ms, 1, fields.MAX_UINT64)
    return fields.string("name", name), fields.string("text", text), time
