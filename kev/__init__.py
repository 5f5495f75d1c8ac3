"""Kev: many independent questions in one model forward, each in its own isolated channel.

``kev.Engine`` answers in this process; ``kev.Client`` and ``kev.AsyncClient``
ask a running cluster. They are imported on first use, so that services which
import ``kev`` get neither torch nor each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kev.app.engine import Engine
    from kev.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "Engine"]

_HOMES = {"Engine": "kev.app.engine", "Client": "kev.client", "AsyncClient": "kev.client"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
