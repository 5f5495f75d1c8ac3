"""Ends connections of callers who stopped reading.

The server writes into a buffer of its own once the kernel's is full, and waits. By itself it would wait for as long as
the caller keeps the connection, with the rest of the answer in memory, and also after the answer's end.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import logging
import termios
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from kev.app.http.metrics import STALLED

log = logging.getLogger(__name__)
R = TypeVar("R", bound=Hashable)
STALLED_S = 60.0
LOOKS = 4
"""How often a connection is looked at in that time."""


class Connection(Protocol):
    """What is needed of a server's connection."""

    transport: asyncio.Transport


class Unread(Generic[R]):
    """What waits for each reader, and since when it has been just as much. Pure.

    Args:
        patience_s: How long a reader may take nothing. One that is slow takes something.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since: dict[R, tuple[int, float]] = {}

    def stalled(self, waiting: Mapping[R, int], now_s: float) -> list[R]:
        """Those whose patience is over, given the bytes that wait for each."""
        since: dict[R, tuple[int, float]] = {}
        for reader, size in waiting.items():
            before = self._since.get(reader)
            since[reader] = before if before is not None and before[0] == size else (size, now_s)
        self._since = since
        return [reader for reader, (_, at) in since.items() if now_s - at >= self._patience_s]


async def end_stalled(connections: Iterable[Connection], patience_s: float = STALLED_S) -> None:
    """Looks at the connections again and again, until it is cancelled. To the application a caller whose connection
    ends is one that left."""
    unread: Unread[asyncio.Transport] = Unread(patience_s)
    while True:
        await asyncio.sleep(patience_s / LOOKS)
        transports = [connection.transport for connection in connections]
        waiting = {transport: size for transport in transports if (size := waiting_bytes(transport))}
        for transport in unread.stalled(waiting, asyncio.get_running_loop().time()):
            STALLED.inc()
            log.info("a caller took nothing of its answer for %g s: its connection ends", patience_s)
            transport.abort()  # a close would wait for the reader


def waiting_bytes(transport: asyncio.Transport) -> int:
    """Bytes that the reader has not taken; 0 while none of them is in our own memory.

    The kernel's share is needed to see a slow reader's progress: it takes megabytes before our buffer moves.
    """
    own = transport.get_write_buffer_size()
    return own + _in_kernel(transport.get_extra_info("socket").fileno()) if own else 0


def _in_kernel(descriptor: int) -> int:
    size = array.array("i", [0])
    try:
        fcntl.ioctl(descriptor, termios.TIOCOUTQ, size)
    except (OSError, ValueError):  # closed meanwhile
        return 0
    return size[0]
