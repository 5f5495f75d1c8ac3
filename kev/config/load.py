"""``kev.yaml`` + environment + flags -> ``Settings``.

Later sources win: file, ``KEV_<SECTION>_<KEY>``, flags. Unknown and bad keys
are refused with their path and what is allowed.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from kev.config.complaint import complaint
from kev.config.sections.base import Section
from kev.config.settings import Settings
from kev.config.source import ConfigError, Variable, from_environment, from_flags, read_file

__all__ = ["ConfigError", "load_settings", "shown"]

SECTIONS: dict[str, type[Section]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}
FORMER_KEYS = {
    "max_batch_size": "router.max_parallel_queries",
    "max_seq_len": "core.max_context",
    "dtype": "core.precision",
    "queue": "the section bus (bus.url, bus.queue_bound, bus.ack_wait_ms)",
}
"""Keys of the first seed, and today's names."""


def load_settings(
    path: str | Path | None = None,
    *,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Reads and checks the configuration.

    Args:
        path: The YAML file; None takes the defaults.
        flags: ``section.key`` or ``section_key`` -> value, on top of everything;
            a value of None means that the flag was not given.
        environment: Stands in for ``os.environ`` in tests.

    Raises:
        ConfigError: the file cannot be read, or a key or value is bad.
    """
    tree: dict[str, Any] = read_file(Path(path), SECTIONS) if path is not None else {}
    if problems := list(_not_sections(tree)):
        raise ConfigError("\n".join(problems))
    variables = list(from_environment(os.environ if environment is None else environment))
    if problems := list(_misspelt(variables)):
        raise ConfigError("\n".join(problems))
    _lay_over(tree, ((section, key, value) for _, section, key, value in variables if section in SECTIONS))
    _lay_over(tree, from_flags(flags or {}, SECTIONS))
    if problems := list(_unknown_keys(tree)):
        raise ConfigError("\n".join(problems))
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("\n".join(_lines(error))) from None


def shown(settings: Settings) -> str:
    """The settings as YAML with secrets hidden, for the start-up log."""
    tree = settings.model_dump(mode="json")
    tree["bus"]["url"] = re.sub(r"//[^/@]*@", "//**********@", tree["bus"]["url"])
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def _lay_over(tree: dict[str, Any], entries: Iterable[tuple[str, str, Any]]) -> None:
    for section, key, value in entries:
        tree.setdefault(section, {})[key] = value


def _not_sections(tree: Mapping[str, Any]) -> Iterator[str]:
    for name, section in tree.items():
        if name not in SECTIONS:
            yield f"{name}: {_hint(name) or 'unknown section; allowed: ' + ', '.join(SECTIONS)}"
        elif not isinstance(section, dict):
            yield f"{name}: must hold keys ({', '.join(SECTIONS[name].model_fields)})"


def _misspelt(variables: Iterable[Variable]) -> Iterator[str]:
    """Those of no section, but nearly of one that has the key. Others that begin with ``KEV_`` are not ours."""
    for name, section, key, _ in variables:
        for close in () if section in SECTIONS else difflib.get_close_matches(section, SECTIONS, 1, 0.75):
            if key in SECTIONS[close].model_fields:
                yield f"{name}: unknown variable; did you mean KEV_{close.upper()}_{key.upper()}?"


def _unknown_keys(tree: Mapping[str, Any]) -> Iterator[str]:
    for name, section in tree.items():
        for key in section:
            if key not in SECTIONS[name].model_fields:
                allowed = f"unknown key; allowed: {', '.join(SECTIONS[name].model_fields)}"
                yield f"{name}.{key}: {_hint(str(key)) or allowed}"


def _hint(key: str) -> str:
    """Where a key lives today, if it looks like one that moved."""
    if key in FORMER_KEYS:
        return f"is now {FORMER_KEYS[key]}"
    homes = [f"{name}.{key}" for name, section in SECTIONS.items() if key in section.model_fields]
    if homes:
        return f"unknown here; did you mean {' or '.join(homes)}?"
    every = [f"{name}.{field}" for name, section in SECTIONS.items() for field in section.model_fields]
    close = [path for path in every if difflib.get_close_matches(key, [path.split(".")[1]], cutoff=0.8)]
    return f"unknown key; did you mean {' or '.join(close)}?" if close else ""


def _lines(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_context=False):
        path = ".".join(str(part) for part in problem["loc"])
        message = complaint(problem["type"], problem["msg"], problem["loc"], Settings)
        given = problem.get("input")
        secret = path in ("bus.password", "bus.url") or path.startswith("auth.")
        shows = isinstance(given, str | int | float | bool) and not secret and problem["type"] != "extra_forbidden"
        got = f", got {given!r}" if shows else ""
        yield f"{path}: {message}{got}" if path else message
