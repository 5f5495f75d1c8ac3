"""How a command runs: its event loop, its errors as lines, its exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import typer

from kev.config.load import ConfigError
from kev.domain.errors import KevError
from kev.wire.process import StartError

FAILED = 1
BAD_USE = 2
INTERRUPTED = 130
UNEXPECTED = 70
log = logging.getLogger(__name__)


def known_errors() -> tuple[type[Exception], ...]:
    """Errors whose text tells the user enough."""
    from kev.app.cluster.child import ChildDied
    from kev.tokens.model_files import ModelNotFound

    known: list[type[Exception]] = [ConfigError, StartError, KevError, ChildDied, ModelNotFound]
    if (loading := sys.modules.get("inference_svc.loading")) is not None:
        known.append(loading.ModelUnusable)
    return tuple(known)


def run_command(work: Callable[[], Coroutine[Any, Any, int]]) -> NoReturn:
    """Runs a command and exits with its code.

    An error ends it with a line on stderr and exit code 1, Ctrl-C with 130.
    """
    try:
        code = asyncio.run(work())
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    except Exception as error:
        code = told(error)
    raise typer.Exit(code)


def run_check(work: Callable[[], int], cannot: Callable[[], tuple[type[Exception], ...]]) -> NoReturn:
    """Runs a command that checks something, and exits with its code: 0 or 1 is its verdict.

    So an error that leaves nothing to check ends it with 2. It runs in the main
    thread, where Ctrl-C ends it after the running forward.

    Args:
        cannot: More errors whose text tells the user enough; called where one has happened.
    """
    try:
        code = work()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        code = told(error, cannot())
        code = BAD_USE if code == FAILED else code
    raise typer.Exit(code)


def told(error: Exception, more: tuple[type[Exception], ...] = ()) -> int:
    """Says what went wrong, and returns the exit code. ``more``: errors that are known beside the usual ones."""
    if isinstance(error, (*known_errors(), *more)):
        for line in str(error).splitlines():
            sys.stderr.write(f"error: {line}\n")
        return FAILED
    text = " ".join(str(error).split())
    sys.stderr.write(f"error: unexpected {type(error).__name__}: {text} (KEV_LOG_LEVEL=debug shows where)\n")
    log.debug("unexpected", exc_info=error)
    return UNEXPECTED
