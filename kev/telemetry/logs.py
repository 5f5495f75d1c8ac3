"""The log: lines for people, or one JSON object a line for machines.

What a line is about travels beside its text: ``log.info("a question ended",
extra=about(request_id=…, slot=…))``. A service says the end of each request
through ``Told``, which bounds how many such lines a second may have. Neither
a question's nor an answer's text is ever logged.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from kev.config.settings import LogFormat, LogSettings
from kev.telemetry import traces

MOST_CHARS = 8_000
"""Most characters of a line's text; a traceback may have four times as many and keeps its end."""
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CREDENTIALS = re.compile(r"//[^/@\s\"']*@")
_ABOUT: ContextVar[Mapping[str, Any]] = ContextVar("kev_log_about", default=MappingProxyType({}))
_ALWAYS: dict[str, Any] = {}
"""Facts of this process that stand in every line, e.g. the worker's id."""


def about(**facts: Any) -> dict[str, Any]:
    """What a line is about, as the argument ``extra`` of a logger. Empty facts are left out."""
    return {"kev_about": {name: fact for name, fact in facts.items() if fact is not None and fact != ""}}


def hidden(error: BaseException, to: logging.Logger) -> str:
    """What the outside is told of an error of ours: an id. The error's own text is only logged, under that id."""
    error_id = secrets.token_hex(4)
    text = f"internal error {error_id}"
    to.error("%s", text, exc_info=error, extra=about(error_id=error_id))
    return text


@contextmanager
def all_about(**facts: Any) -> Iterator[None]:
    """Every line that is logged inside is about this, too. Inside a coroutine, not a generator."""
    token = _ABOUT.set({**_ABOUT.get(), **facts})
    try:
        yield
    finally:
        _ABOUT.reset(token)


def always(**facts: Any) -> None:
    """From now on every line of this process says this."""
    _ALWAYS.update(facts)


def set_up_log(settings: LogSettings, service: str = "kev") -> None:
    """Lines on stderr, of the level and in the format that the settings name."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(service) if settings.format is LogFormat.JSON else TextLines(_TEXT))
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)


def in_json() -> bool:
    """Whether this process logs JSON. Before its settings are read, the environment tells."""
    handlers = logging.getLogger().handlers
    if handlers:
        return any(isinstance(handler.formatter, JsonLines) for handler in handlers)
    return os.environ.get("KEV_LOG_FORMAT", "").lower() == LogFormat.JSON.value


def say_error(text: str, service: str = "kev") -> None:
    """Says on stderr why the process ends: ``error: …``, or the same as JSON."""
    for line in text.splitlines():
        made = json_line(level="error", service=service, message=line) if in_json() else f"error: {line}"
        sys.stderr.write(made + "\n")


def json_line(**fields: Any) -> str:
    """A JSON line of now."""
    return _line({"time": _stamp(time.time()), **fields})


def error_in(line: str) -> str | None:
    """The text of a line of ``say_error`` in either format; None for any other line."""
    if line.startswith("error: "):
        return line.removeprefix("error: ")
    fields = read_json(line)
    return str(fields["message"]) if fields.get("level") == "error" and "logger" not in fields else None


def read_json(line: str) -> dict[str, Any]:
    """The fields of a JSON line; empty for any other line."""
    if not line.startswith("{"):
        return {}
    try:
        fields = json.loads(line)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, service, logger, message, what it is about, traceback."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """The line of one record."""
        fields = {
            "time": _stamp(record.created),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": _clean(record.getMessage())[:MOST_CHARS],
            **_facts(record),
        }
        if record.exc_info:
            fields["traceback"] = _clean(self.formatException(record.exc_info))[-4 * MOST_CHARS :]
        return _line(fields)


class TextLines(logging.Formatter):
    """Lines for people; what a line is about stands at its end."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The first line of one record."""
        facts = " ".join(f"{name}={fact}" for name, fact in _facts(record).items())
        return _clean(super().formatMessage(record)) + (f" [{facts}]" if facts else "")

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Its traceback."""
        return _clean(super().formatException(ei))


class Told:
    """Says ends of requests at level info: at most some a second, with a count of those that were not said.

    Args:
        per_s: Lines a second.
        clock: Monotonic seconds.
    """

    def __init__(self, log: logging.Logger, per_s: int = 20, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._per_s = per_s
        self._clock = clock
        self._second = -1
        self._said = 0
        self._unsaid = 0

    def say(self, text: str, **facts: Any) -> None:
        """One line, unless this second has had enough of them."""
        if not self._log.isEnabledFor(logging.INFO):
            return
        second = int(self._clock())
        if second != self._second:
            self._second, self._said = second, 0
        if self._said >= self._per_s:
            self._unsaid += 1
            return
        unsaid, self._unsaid = self._unsaid, 0
        self._said += 1
        self._log.info(text, extra=about(**facts, unsaid=unsaid or None))


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    own: Mapping[str, Any] = getattr(record, "kev_about", {})
    return {**_ALWAYS, **_ABOUT.get(), **traces.ids(), **own}


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _clean(text: str) -> str:
    """Without the credentials that an address may hold."""
    return _CREDENTIALS.sub("//**********@", text)


def _line(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, default=str)
