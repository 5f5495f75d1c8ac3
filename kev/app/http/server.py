"""Serves the application until cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from kev.app.http.stalled import STALLED_S, end_stalled
from kev.wire.process import StartError

GRACE_S = 5


def listen_on(host: str, port: int) -> socket.socket:
    """A bound socket; bound first, so that a busy port is told before a model is loaded.

    Raises:
        StartError: the address is bad or taken.
    """
    try:
        family, kind, proto, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        door = socket.socket(family, kind, proto)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(where)
    except OSError as error:
        raise _refused(host, port, error) from None
    return door


def open_door(door: socket.socket, backlog: int) -> None:
    """From now on every connection is taken.

    Raises:
        StartError: another process took the address since it was bound.
    """
    host, port = door.getsockname()[:2]
    try:
        door.listen(backlog)
    except OSError as error:
        raise _refused(host, port, error) from None


def _refused(host: str, port: int, error: OSError) -> StartError:
    return StartError(f"cannot listen on {host}:{port}: {error.strerror or error}")


async def serve(app: ASGIApp, door: socket.socket, *, stalled_s: float = STALLED_S) -> None:
    """Serves until cancelled; running requests then get a few seconds to end.

    Args:
        stalled_s: How long a caller may take nothing of what waits for it.
    """
    server = _Server(
        uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=GRACE_S)
    )
    serving = asyncio.create_task(server.serve(sockets=[door]))
    watching = asyncio.create_task(end_stalled(server.server_state.connections, stalled_s))
    try:
        await asyncio.shield(serving)
    finally:
        watching.cancel()
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    """Leaves the signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Does nothing: cancelling ``serve`` ends it."""
        yield
