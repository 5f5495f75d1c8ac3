"""Checks of single fields. Each returns the value as the domain wants it, or says what is allowed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from kev.domain.constraint import FORMS, HOLDS, mistake_in
from kev.domain.errors import InvalidArgument
from kev.domain.logprobs import MOST_TOP
from kev.domain.question import Constraint, Priority

MAX_UINT32 = 2**32 - 1
MAX_UINT64 = 2**64 - 1
MAX_STOPS = 8
MAX_STOP_CHARS = 200
MAX_BIASES = 300


def whole(field: str, value: object, low: int, high: int) -> int:
    """A whole number of ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not low <= int(value) <= high:
        raise InvalidArgument(field, f"must be a whole number from {low} to {high}; got {shown(value)}")
    return int(value)


def number(field: str, value: object, low: float, high: float) -> float:
    """A number of ``low`` to ``high``."""
    given: Any = value  # compared as it is: not every number fits a float
    if isinstance(value, bool) or not isinstance(value, Real) or not low <= given <= high:
        raise InvalidArgument(field, f"must be a number from {low:g} to {high:g}; got {shown(value)}")
    return float(value)


def string(field: str, value: object) -> str:
    """Text. Halves of surrogate pairs, which no encoding can carry, become U+FFFD."""
    if not isinstance(value, str):
        raise InvalidArgument(field, f"must be a string; got {shown(value)}")
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def one_of(field: str, value: object, allowed: Sequence[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidArgument(field, f"must be one of {', '.join(allowed)}; got {shown(value)}")
    return value


def flag(field: str, value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise InvalidArgument(field, f"must be true or false; got {shown(value)}")
    return value


def above_0(field: str, value: object, high: float) -> float:
    """A number above 0, of at most ``high``."""
    given: Any = value
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < given <= high:
        raise InvalidArgument(field, f"must be a number above 0 and at most {high:g}; got {shown(value)}")
    return float(value)


def stops(field: str, value: object) -> tuple[str, ...]:
    """Stop strings: one, or a few."""
    listed = (value,) if isinstance(value, str) else value
    allowed = f"must be a string or at most {MAX_STOPS} strings of 1 to {MAX_STOP_CHARS} characters"
    if not isinstance(listed, Sequence) or len(listed) > MAX_STOPS:
        raise InvalidArgument(field, f"{allowed}; got {shown(value)}")
    if any(not isinstance(stop, str) or not 1 <= len(stop) <= MAX_STOP_CHARS for stop in listed):
        raise InvalidArgument(field, f"{allowed}; got {shown(value)}")
    return tuple(string(field, stop) for stop in listed)


def biases(field: str, value: object) -> dict[int, float]:
    """Numbers for token ids; JSON writes the ids as strings."""
    if not isinstance(value, Mapping) or len(value) > MAX_BIASES:
        raise InvalidArgument(field, f"must be an object of at most {MAX_BIASES} token ids; got {shown(value)}")
    found = {}
    for key, bias in value.items():
        token = int(key) if isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) <= 10 else key
        if isinstance(token, bool) or not isinstance(token, Integral) or not 0 <= int(token) <= MAX_UINT32:
            raise InvalidArgument(field, f"each key must be a token id; got {shown(key)}")
        if int(token) in found:
            raise InvalidArgument(field, f"must name each token once; {token} is there twice")
        found[int(token)] = number(f"{field}[{token}]", bias, -100, 100)
    return found


def constraint(field: str, value: object) -> Constraint:
    """A constraint: an object with ``choices``, ``json_schema`` (an object or its text) or ``regex``."""
    if isinstance(value, Constraint):
        value = {name: given for name in FORMS if not _nothing(given := getattr(value, name))}
    if isinstance(value, Mapping):
        value = {name: given for name, given in value.items() if given is not None}
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in FORMS:
        raise InvalidArgument(field, f"must be an object with one of {', '.join(FORMS)}; got {shown(value)}")
    form, given = next(iter(value.items()))
    where = f"{field}.{form}"
    made = Constraint(choices=_choices(where, given)) if form == "choices" else _text_form(form, where, given)
    if not getattr(made, form):  # as if it had not been named
        raise InvalidArgument(where, f"must not be empty, or be left out; {HOLDS[form]}")
    if (mistake := mistake_in(made)) is not None:
        raise InvalidArgument(where, mistake.removeprefix(f"{form}: "))
    return made


def _choices(field: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidArgument(field, f"must be a list of strings; got {shown(value)}")
    return tuple(string(field, choice) for choice in value)


def _text_form(form: str, field: str, value: object) -> Constraint:
    if form == "regex":
        return Constraint(regex=string(field, value))
    if not isinstance(value, str | Mapping):
        raise InvalidArgument(field, f"must be a JSON schema, or its text; got {shown(value)}")
    return Constraint(json_schema=string(field, _json(field, value) if isinstance(value, Mapping) else value))


def _nothing(given: object) -> bool:
    return isinstance(given, str | Sequence) and len(given) == 0


def _json(field: str, value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(field, f"must be JSON; {error}") from None


CHECKS: Mapping[str, Callable[[str, object], Any]] = {
    "max_tokens": lambda field, value: whole(field, value, 1, MAX_UINT32),
    "timeout_ms": lambda field, value: whole(field, value, 1, MAX_UINT32),
    "temperature": lambda field, value: number(field, value, 0, 2),
    "top_k": lambda field, value: whole(field, value, 0, MAX_UINT32),
    "top_p": lambda field, value: above_0(field, value, 1),
    "seed": lambda field, value: whole(field, value, 0, MAX_UINT64),
    "stop": stops,
    "min_p": lambda field, value: number(field, value, 0, 1),
    "repetition_penalty": lambda field, value: above_0(field, value, 2),
    "presence_penalty": lambda field, value: number(field, value, -2, 2),
    "frequency_penalty": lambda field, value: number(field, value, -2, 2),
    "logit_bias": biases,
    "logprobs": lambda field, value: whole(field, value, 0, MOST_TOP),
    "constraint": constraint,
    "priority": lambda field, value: one_of(field, value, tuple(Priority)),
    "routing_key": string,
    "context_pool": string,
    "truncate": flag,
}
"""The limits of a question, and how each is checked."""
SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "seed",
    "stop",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
)
"""Those that make up its ``Sampling``."""


def checked(limits: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The limits that are set, each checked; ``prefix`` goes before their names in errors."""
    return {name: CHECKS[name](f"{prefix}{name}", limits[name]) for name in CHECKS if limits.get(name) is not None}


def shown(value: object) -> str:
    """What was given, for an error: short, whatever it is."""
    try:
        text = repr(value)
    except Exception:  # whole numbers of thousands of digits have none, nor what is nested too deep
        return type(value).__name__
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:50]}…"
