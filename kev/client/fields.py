"""Checks of single fields. Each returns the value as the domain wants it, or says what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kev.domain.errors import InvalidArgument
from kev.domain.question import Priority

MAX_UINT32 = 2**32 - 1
MAX_UINT64 = 2**64 - 1
MAX_STOPS = 8
MAX_STOP_CHARS = 200


def whole(field: str, value: object, low: int, high: int) -> int:
    """A whole number of ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidArgument(field, f"must be a whole number from {low} to {high}; got {_shown(value)}")
    return value


def number(field: str, value: object, low: float, high: float) -> float:
    """A number of ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidArgument(field, f"must be a number from {low:g} to {high:g}; got {_shown(value)}")
    return float(value)


def string(field: str, value: object) -> str:
    """Text. Halves of surrogate pairs, which no encoding can carry, become U+FFFD."""
    if not isinstance(value, str):
        raise InvalidArgument(field, f"must be a string; got {_shown(value)}")
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def one_of(field: str, value: object, allowed: Sequence[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidArgument(field, f"must be one of {', '.join(allowed)}; got {_shown(value)}")
    return value


def flag(field: str, value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise InvalidArgument(field, f"must be true or false; got {_shown(value)}")
    return value


def top_p(field: str, value: object) -> float:
    """A probability above 0."""
    if number(field, value, 0, 1) == 0:
        raise InvalidArgument(field, "must be above 0 and at most 1; got 0")
    return number(field, value, 0, 1)


def stops(field: str, value: object) -> tuple[str, ...]:
    """Stop strings: one, or a few."""
    listed = (value,) if isinstance(value, str) else value
    allowed = f"must be a string or at most {MAX_STOPS} strings of 1 to {MAX_STOP_CHARS} characters"
    if not isinstance(listed, Sequence) or len(listed) > MAX_STOPS:
        raise InvalidArgument(field, f"{allowed}; got {_shown(value)}")
    if any(not isinstance(stop, str) or not 1 <= len(stop) <= MAX_STOP_CHARS for stop in listed):
        raise InvalidArgument(field, f"{allowed}; got {_shown(value)}")
    return tuple(string(field, stop) for stop in listed)


CHECKS: Mapping[str, Callable[[str, object], Any]] = {
    "max_tokens": lambda field, value: whole(field, value, 1, MAX_UINT32),
    "timeout_ms": lambda field, value: whole(field, value, 1, MAX_UINT32),
    "temperature": lambda field, value: number(field, value, 0, 2),
    "top_k": lambda field, value: whole(field, value, 0, MAX_UINT32),
    "top_p": top_p,
    "seed": lambda field, value: whole(field, value, 0, MAX_UINT64),
    "stop": stops,
    "priority": lambda field, value: one_of(field, value, tuple(Priority)),
    "routing_key": string,
    "truncate": flag,
}
"""The limits of a question, and how each is checked."""
SAMPLING = ("temperature", "top_k", "top_p", "seed", "stop")
"""Those that make up its ``Sampling``."""


def checked(limits: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The limits that are set, each checked; ``prefix`` goes before their names in errors."""
    return {name: CHECKS[name](f"{prefix}{name}", limits[name]) for name in CHECKS if limits.get(name) is not None}


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:50]}…"
