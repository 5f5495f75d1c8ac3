"""A service as a process: signals, exit code, log, metrics, ready line."""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping

from prometheus_client import REGISTRY

from kev.config.load import ConfigError, load_settings
from kev.config.settings import MetricsSettings, Settings
from kev.domain.errors import KevError
from kev.telemetry import traces
from kev.telemetry.logs import in_json, json_line, read_json, say_error, set_up_log
from kev.wire.exposition import serve

log = logging.getLogger(__name__)
_OF_A_LINE = ("time", "level", "message")


class StartError(Exception):
    """A service cannot start; the text is one clear line for the operator."""


def run_service(main: Callable[[], Awaitable[None]], *, known: tuple[type[Exception], ...] = ()) -> int:
    """Runs ``main`` until it ends or the process is told to stop.

    The first SIGTERM or SIGINT cancels ``main``: it drains in its ``finally``
    (or ``async with``) and the exit code is 0. A second one kills.

    Args:
        known: Further errors whose text tells the operator enough.

    Returns:
        The exit code. Configuration, start and bus errors, and ``known`` ones,
        are printed as a line each (code 1); any other error with its traceback (code 70).
    """
    expected: tuple[type[Exception], ...] = (ConfigError, StartError, KevError, *known)
    try:
        with asyncio.Runner(loop_factory=_event_loop()) as runner:
            return runner.run(_until_signal(main))
    except expected as error:
        say_error(str(error))
        return 1
    except Exception:
        log.exception("the service ended on an error that nothing expected")
        return 70


def _event_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes a service's event loop: uvloop, which needs about a sixth less processor time for the same messages;
    None, for Python's own, where it is not installed (it is not made for Windows)."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    make: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    return make


async def _until_signal(main: Callable[[], Awaitable[None]]) -> int:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(main())
    told = False

    def stop() -> None:
        nonlocal told
        told = True
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not told:
            raise
    return 0


async def forever() -> None:
    """Waits until cancelled: the last line of a service's ``main``."""
    await asyncio.get_running_loop().create_future()


def settings_from_command_line(program: str, arguments: list[str] | None = None) -> Settings:
    """``--config FILE`` and any number of ``--set section.key=value``; also sets up log and traces.

    Raises:
        ConfigError: as ``load_settings``.
    """
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--config", help="kev.yaml; without it the defaults are taken")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="on top of file and environment"
    )
    given = parser.parse_args(arguments)
    settings = load_settings(given.config, flags=dict(_flag(text) for text in given.set))
    service = program.removesuffix("_svc")
    set_up_log(settings.log, service)
    traces.set_up(settings.trace, service)
    return settings


def _flag(text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not equals or "." not in path:
        raise ConfigError(f"--set {text}: must be SECTION.KEY=VALUE")
    return path, value


def serve_metrics(settings: MetricsSettings) -> str:
    """Starts the Prometheus endpoint; returns its address, empty when it is off.

    Raises:
        StartError: the port is taken.
    """
    if settings.port == 0:
        return ""
    try:
        serve(REGISTRY, settings.host, settings.port)
    except OSError as error:
        raise StartError(f"metrics: cannot listen on {settings.host}:{settings.port} ({error.strerror})") from None
    return f"{settings.host}:{settings.port}"


def keep_start() -> None:
    """What the start has made stays to the end, so no later garbage collection looks at it: that took tens of
    milliseconds each time, in which the event loop stood still."""
    gc.collect()
    gc.freeze()


def say_ready(service: str, **facts: str) -> None:
    """The ready line on stdout: ``aggregator ready address=127.0.0.1:50052``, or the same as JSON where the log is.
    Empty facts are left out."""
    given = {name: value for name, value in facts.items() if value}
    if in_json():
        line = json_line(level="info", service=service, message="ready", **given)
    else:
        line = " ".join([service, "ready", *(f"{name}={value}" for name, value in given.items())])
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def read_ready(line: str) -> Mapping[str, str] | None:
    """The facts of a ready line in either format (with ``service``), None for any other line."""
    if fields := read_json(line):
        ready = fields.get("message") == "ready" and "logger" not in fields
        return {name: fact for name, fact in fields.items() if name not in _OF_A_LINE} if ready else None
    words = line.split()
    if len(words) < 2 or words[1] != "ready":
        return None
    return {"service": words[0], **dict(word.partition("=")[::2] for word in words[2:])}
