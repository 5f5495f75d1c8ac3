"""The form of a constraint: what can be said of it without compiling it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kev.domain.question import Constraint

MAX_CHOICES, MAX_CHOICE_CHARS, MAX_CHOICES_CHARS = 1_000, 1_000, 100_000
MAX_SCHEMA_CHARS, MAX_SCHEMA_DEPTH = 50_000, 100
MAX_REGEX_CHARS, MAX_REGEX_DEPTH = 5_000, 100
FORMS = ("choices", "json_schema", "regex")
HOLDS = {
    "choices": f"it holds 1 to {MAX_CHOICES:,} strings",
    "json_schema": "it holds a JSON object",
    "regex": f"it holds 1 to {MAX_REGEX_CHARS:,} characters",
}
"""What each form holds."""
_ONE = "set one of choices, json_schema and regex"
_REPEAT = re.compile(r"\{(\d*),?(\d*)\}")
_BACK = re.compile(r"\\(?:[1-9]|k[<{'])|\(\?P=")
_LOOK = re.compile(r"\(\?<?[=!]")


def mistake_in(constraint: Constraint) -> str | None:
    """What is wrong with a constraint: the field and what is allowed, ``json_schema: must be …``; None if its form
    is right."""
    forms = [name for name in FORMS if getattr(constraint, name)]
    if len(forms) != 1:
        return f"{_ONE}, got {' and '.join(forms) or 'none'}"
    found = next(_CHECKS[forms[0]](getattr(constraint, forms[0])), None)
    return None if found is None else f"{forms[0]}: {found}"


def _choice_mistakes(choices: tuple[str, ...]) -> Iterator[str]:
    if len(choices) > MAX_CHOICES:
        yield f"must be 1 to {MAX_CHOICES:,} strings, got {len(choices):,}"
    for place, choice in enumerate(choices):
        if not 1 <= len(choice) <= MAX_CHOICE_CHARS:
            yield f"each must have 1 to {MAX_CHOICE_CHARS:,} characters; number {place + 1} has {len(choice):,}"
    if (chars := sum(map(len, choices))) > MAX_CHOICES_CHARS:
        yield f"must have at most {MAX_CHOICES_CHARS:,} characters together, got {chars:,}"


def _schema_mistakes(text: str) -> Iterator[str]:
    if len(text) > MAX_SCHEMA_CHARS:
        yield f"must have at most {MAX_SCHEMA_CHARS:,} characters, got {len(text):,}"
        return
    try:
        schema = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        yield f"must be nested at most {MAX_SCHEMA_DEPTH} deep"
    except ValueError as error:
        yield f"must be JSON; {error}"
    else:
        if not isinstance(schema, dict):
            yield "must be a JSON object"
        elif (deep := _depth(schema)) > MAX_SCHEMA_DEPTH:
            yield f"must be nested at most {MAX_SCHEMA_DEPTH} deep, got {deep}"


def _no_constant(name: str) -> None:
    raise ValueError(f"it has no {name}")


def _depth(value: Any) -> int:
    """How many objects and lists are inside each other."""
    depth, level = 0, [value]
    while level := [part for part in level if isinstance(part, dict | list)]:
        depth += 1
        level = [inner for part in level for inner in (part.values() if isinstance(part, dict) else part)]
    return depth


def _regex_mistakes(text: str) -> Iterator[str]:
    if len(text) > MAX_REGEX_CHARS:
        yield f"must have at most {MAX_REGEX_CHARS:,} characters, got {len(text):,}"
        return
    if "\0" in text:
        yield "must not hold NUL; write \\x00"
    plain, open_class = _outside_classes(text)
    if open_class:
        yield "a [ is not closed"
    if len(plain) > 0 and plain.endswith("\\") and (len(plain) - len(plain.rstrip("\\"))) % 2:
        yield "ends with a lone backslash"
    bare = re.sub(r"\\\\", "", plain)
    if _BACK.search(bare):
        yield "references back to a group are not supported"
    bare = re.sub(r"\\[^pPxu]", "", bare)
    if _LOOK.search(bare):
        yield "look-ahead and look-behind are not supported"
    yield from _group_mistakes(bare)
    for low, high in _REPEAT.findall(bare):
        if low and high and int(low) > int(high):
            yield f"{{{low},{high}}} must count upwards"


def _group_mistakes(bare: str) -> Iterator[str]:
    depth = deepest = 0
    for char in bare:
        depth += (char == "(") - (char == ")")
        deepest = max(deepest, depth)
        if depth < 0:
            yield "a ) closes nothing"
            return
    if depth:
        yield "a ( is not closed"
    if deepest > MAX_REGEX_DEPTH:
        yield f"groups must be nested at most {MAX_REGEX_DEPTH} deep, got {deepest}"


def _outside_classes(text: str) -> tuple[str, bool]:
    """The expression without its ``[...]``, and whether the last of those is open. Classes may hold classes."""
    kept: list[str] = []
    depth, at = 0, 0
    while at < len(text):
        step = 2 if text[at] == "\\" else 1
        if step == 1 and text[at] == "[":
            depth += 1
            at += 1
            at += text[at : at + 1] == "^"
            at += text[at : at + 1] == "]"  # a ] that comes first stands for itself
            if depth == 1:
                kept.append("x")
            continue
        if not depth:
            kept.append(text[at : at + step])
        elif step == 1 and text[at] == "]":
            depth -= 1
        at += step
    return "".join(kept), depth > 0


_CHECKS: Mapping[str, Callable[[Any], Iterator[str]]] = {
    "choices": _choice_mistakes,
    "json_schema": _schema_mistakes,
    "regex": _regex_mistakes,
}
