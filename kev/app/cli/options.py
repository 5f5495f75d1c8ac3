"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kev.app.batchfile.read import text_of
from kev.config.load import ConfigError, load_settings
from kev.config.settings import Settings
from kev.domain.errors import InvalidArgument
from kev.telemetry import traces
from kev.telemetry.logs import set_up_log

Config = Annotated[Path | None, typer.Option("--config", help="kev.yaml; without it the defaults are taken.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="A setting on top of file and environment; repeatable."),
]
Router = Annotated[
    str, typer.Option("--router", metavar="HOST:PORT", help="Ask a running cluster instead of this process.")
]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", min=1, help="Most new tokens of an answer.")]
TimeoutMs = Annotated[int | None, typer.Option("--timeout-ms", min=1, help="A question's time, milliseconds.")]
Isolation = Annotated[str | None, typer.Option("--isolation", help="strict, shared or loose.")]
Strategy = Annotated[
    str | None,
    typer.Option("--strategy", help="round_robin, consistent_hash, semantic_hash or length_aware."),
]
Context = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="A context that the questions read; makes the batch loose."),
]
Prefix = Annotated[str | None, typer.Option("--prefix", help="Text that stands before every question.")]
PrefixFile = Annotated[Path | None, typer.Option("--prefix-file", help="The same from a file, UTF-8.")]
Temperature = Annotated[float | None, typer.Option("--temperature", help="0 is greedy; at most 2.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Fixes the random stream of sampled answers.")]


def settings_of(
    config: Path | None, sets: list[str] | None, flags: Mapping[str, Any] | None = None, service: str = ""
) -> Settings:
    """The settings of a command; also sets up log and traces.

    Args:
        flags: From options of the command's own, on top of all.
        service: Its name, if it serves; else it is a command, whose log begins at warnings.

    Raises:
        ConfigError: names the key and what is allowed.
    """
    settings = load_settings(config, flags={**flags_of(sets), **(flags or {})})
    log = settings.log
    if log.level == "info" and not service:
        log = log.model_copy(update={"level": "warning"})
    set_up_log(log, service or "kev")
    traces.set_up(settings.trace, service or "kev")
    return settings


def flags_of(sets: list[str] | None) -> dict[str, str]:
    """``["core.precision=fp32"]`` -> ``{"core.precision": "fp32"}``."""
    flags = {}
    for text in sets or ():
        path, equals, value = text.partition("=")
        if not equals or "." not in path:
            raise ConfigError(f"--set {text}: must be SECTION.KEY=VALUE")
        flags[path] = value
    return flags


def limits_of(**given: Any) -> dict[str, Any]:
    """The limits that were given."""
    return {name: value for name, value in given.items() if value is not None}


def shared_of(context: str | None, isolation: str | None, prefix: str | None, file: Path | None) -> dict[str, Any]:
    """What the questions of a batch share, as options of the batch: a context makes it loose, if nothing else is said.

    Raises:
        InvalidArgument: two prefixes.
    """
    if prefix is not None and file is not None:
        raise InvalidArgument("--prefix, --prefix-file", "give one of them")
    level = "loose" if context and isolation is None else isolation
    return limits_of(isolation=level, prefix=text_of(str(file)) if file is not None else prefix)
