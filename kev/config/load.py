"""``kev.yaml`` + environment + flags -> ``Settings``.

Later sources win: file, ``KEV_<SECTION>_<KEY>``, flags. Unknown and bad keys
are refused with their path and what is allowed.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from kev.config.settings import Section, Settings

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


class ConfigError(ValueError):
    """A bad configuration; each line of the text names a key and what is allowed."""


def load_settings(
    path: str | Path | None = None,
    *,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Reads and checks the configuration.

    Args:
        path: The YAML file; None takes the defaults.
        flags: ``section.key`` -> value, on top of everything.
        environment: Stands in for ``os.environ`` in tests.

    Raises:
        ConfigError: the file cannot be read, or a key or value is bad.
    """
    tree = _read(Path(path)) if path is not None else {}
    _lay_over(tree, _from_environment(os.environ if environment is None else environment))
    _lay_over(tree, _from_flags(flags or {}))
    if problems := list(_unknown(tree)):
        raise ConfigError("\n".join(problems))
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("\n".join(_lines(error))) from None


def shown(settings: Settings) -> str:
    """The settings as YAML with secrets hidden, for the start-up log."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not valid YAML ({' '.join(str(error).split())})") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path}: must hold sections ({', '.join(SECTIONS)})")
    return _unrooted(path, loaded)


def _unrooted(path: Path, loaded: dict[str, Any]) -> dict[str, Any]:
    """Sections may stand at the top or below a root key ``kev``."""
    root = loaded.pop("kev", None) or {}
    if not isinstance(root, dict):
        raise ConfigError(f"{path}: kev must hold sections ({', '.join(SECTIONS)})")
    if both := sorted(set(root) & set(loaded)):
        raise ConfigError(f"{path}: {', '.join(both)} stands both at the top and below kev; keep one")
    tree = {**loaded, **root}
    for name, section in tree.items():
        if name in SECTIONS and section is None:
            tree[name] = {}
        elif name in SECTIONS and not isinstance(section, dict):
            raise ConfigError(f"{name}: must hold keys ({', '.join(SECTIONS[name].model_fields)})")
    return tree


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """``KEV_CORE_PRECISION=fp32`` -> ``core``, ``precision``, ``fp32``. Other
    variables that begin with ``KEV_`` but name no section are not ours."""
    for variable, value in environment.items():
        head, _, rest = variable.lower().partition("_")
        section, _, key = rest.partition("_")
        if head == "kev" and variable.startswith("KEV_") and section in SECTIONS and key:
            yield section, key, value


def _from_flags(flags: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for path, value in flags.items():
        section, _, key = path.partition(".")
        yield section, key, value


def _lay_over(tree: dict[str, Any], entries: Iterable[tuple[str, str, Any]]) -> None:
    for section, key, value in entries:
        tree.setdefault(section, {})[key] = value


def _unknown(tree: Mapping[str, Any]) -> Iterator[str]:
    for name, section in tree.items():
        if name not in SECTIONS:
            yield f"{name}: {_hint(name) or 'unknown section; allowed: ' + ', '.join(SECTIONS)}"
            continue
        for key in section:
            if key not in SECTIONS[name].model_fields:
                allowed = f"unknown key; allowed: {', '.join(SECTIONS[name].model_fields)}"
                yield f"{name}.{key}: {_hint(key) or allowed}"


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
        message = problem["msg"].removeprefix("Value error, ")
        given = problem.get("input")
        shown_input = (
            f", got {given!r}" if isinstance(given, str | int | float | bool) and "password" not in path else ""
        )
        yield f"{path}: {message}{shown_input}" if path else message
