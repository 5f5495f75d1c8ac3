"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kev.config.load import ConfigError, load_settings
from kev.config.settings import Settings
from kev.telemetry import traces
from kev.telemetry.logs import set_up_log

Config = Annotated[Path | None, typer.Option("--config", help="kev.yaml; without it the defaults are taken.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="A setting on top of file and environment; repeatable."),
]


def _named(context: typer.Context, value: str) -> str:
    """An address that is given is not empty: a shell variable that is not set must not start a model here."""
    source = context.get_parameter_source("router")
    if not value and source is not None and source.name == "COMMANDLINE":
        raise typer.BadParameter("must be HOST:PORT; without it, leave the option out")
    return value


Router = Annotated[
    str,
    typer.Option(
        "--router", metavar="HOST:PORT", callback=_named, help="Ask a running cluster instead of this process."
    ),
]


def settings_of(
    config: Path | None, sets: list[str] | None, flags: Mapping[str, Any] | None = None, service: str = ""
) -> Settings:
    """The settings of a command; also sets up log and traces.

    Args:
        flags: From options of the command's own, on top of all; None for those that were not given.
        service: Its name, if it serves; else it is a command, whose log begins at warnings.

    Raises:
        ConfigError: names the key and what is allowed.
    """
    own = {path: value for path, value in (flags or {}).items() if value is not None}
    settings = load_settings(config, flags={**flags_of(sets), **own})
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
