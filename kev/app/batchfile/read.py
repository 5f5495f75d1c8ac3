"""Reads a file of questions: a JSON list, JSON lines, or text lines."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from kev.client.queries import KEYS, MESSAGE_KEYS, Limits, questions_of
from kev.domain.errors import InvalidArgument, KevError
from kev.domain.question import Question

STDIN = "-"
_INTENTS = ("intent", "category")


class Item(NamedTuple):
    """One item of a file. ``place`` is where it stands, for errors."""

    place: str
    query: Any


class BadFile(KevError):
    """The file is not as it must be; the text names the place and what is allowed."""


def read_questions(name: str, **limits: Unpack[Limits]) -> list[Question]:
    """The questions of a file.

    Args:
        name: Path, or ``-`` for standard input.
        limits: For the items that name none of their own.

    Raises:
        BadFile: it cannot be read, holds nothing, or an item is wrong.
        InvalidArgument: a limit is wrong.
    """
    questions_of((), **limits)
    items = list(items_of(name, text_of(name)))
    if not items:
        raise BadFile(f"{_shown(name)}: holds no questions")
    return [_question(item, limits) for item in items]


class Labelled(NamedTuple):
    """A question's text, and its intent where the file names one."""

    text: str
    intent: str = ""


def read_labelled(name: str) -> list[Labelled]:
    """The texts of a file's questions; an object may name its ``intent`` (or ``category``) too.

    Raises:
        BadFile: as ``read_questions``.
    """
    found = [_labelled(item) for item in items_of(name, text_of(name))]
    if not found:
        raise BadFile(f"{_shown(name)}: holds no questions")
    return found


def items_of(name: str, text: str) -> Iterator[Item]:
    """The items of a file's text. The name's ending says the format; without a
    known one, the text does: a JSON list, lines of JSON objects, or lines of text."""
    where = _shown(name)
    kind = Path(name).suffix.lower() if name != STDIN else ""
    if kind == ".json" or (kind not in (".jsonl", ".ndjson", ".txt") and _is_list(text)):
        return _list_items(where, text)
    if kind in (".jsonl", ".ndjson") or (kind != ".txt" and _is_object(text.lstrip().partition("\n")[0])):
        return _json_lines(where, text)
    return _text_lines(where, text)


def text_of(name: str) -> str:
    """The text of a file, or of standard input (``-``).

    Raises:
        BadFile: it cannot be read, or is not UTF-8.
    """
    try:
        raw = sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except OSError as error:
        raise BadFile(f"{name}: cannot be read ({error.strerror})") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(f"{_shown(name)}: must be UTF-8; byte {error.start} is not") from None


def _list_items(where: str, text: str) -> Iterator[Item]:
    found = _json(where, text)
    if not isinstance(found, list):
        raise BadFile(f"{where}: must hold a JSON list of questions")
    for place, query in enumerate(found):
        yield Item(f"{where}[{place}]", query)


def _json_lines(where: str, text: str) -> Iterator[Item]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield Item(f"{where}:{number}", _json(f"{where}:{number}", line))


def _text_lines(where: str, text: str) -> Iterator[Item]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield Item(f"{where}:{number}", line.strip())


def _json(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{where}: is not valid JSON ({error})") from None


def _is_list(text: str) -> bool:
    try:
        return text.lstrip().startswith("[") and isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def _is_object(line: str) -> bool:
    try:
        return line.startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _question(item: Item, limits: Limits) -> Question:
    if not isinstance(item.query, str | dict):
        raise BadFile(f"{item.place}: must be a text, or an object with text or messages")
    query = item.query if isinstance(item.query, str) else _known(item)
    try:
        return questions_of(query, **limits)[0]
    except InvalidArgument as error:
        field = error.field.removeprefix("queries[0]").lstrip(".")
        raise BadFile(f"{item.place}: {field + ': ' if field else ''}{error.allowed}") from None


def _labelled(item: Item) -> Labelled:
    query, intent = item.query, ""
    if isinstance(query, dict):
        named = {key: query[key] for key in _INTENTS if key in query}
        query = {key: value for key, value in query.items() if key not in named}
        intent = next((value for value in named.values() if isinstance(value, str)), "")
    question = _question(Item(item.place, query), {})
    asked = next((turn.content for turn in question.messages[::-1] if turn.role == "user"), question.text)
    return Labelled(asked, intent)


def _known(item: Item) -> dict[str, Any]:
    """What a query may hold. A file's other columns are its own affair, unless one looks like a slip of the pen."""
    for key in item.query.keys() - set(KEYS):
        if close := difflib.get_close_matches(key, KEYS, 1, 0.85):
            raise BadFile(f"{item.place}: {key[:64]}: unknown key; did you mean {close[0]}?")
    known = {key: value for key, value in item.query.items() if key in KEYS}
    if isinstance(turns := known.get("messages"), list):
        known["messages"] = [_known_turn(turn) for turn in turns]
    return known


def _known_turn(turn: Any) -> Any:
    return {key: turn[key] for key in MESSAGE_KEYS if key in turn} if isinstance(turn, dict) else turn


def _shown(name: str) -> str:
    return "standard input" if name == STDIN else name
