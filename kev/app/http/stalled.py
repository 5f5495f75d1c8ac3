"""Ends connections of callers who stopped reading.

The server writes into a buffer of its own once the kernel's is full, and waits. By itself it would wait for as long as
the caller keeps the connection, with the rest of the answer in memory, and also after the answer's end.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import logging
import socket
import struct
import termios
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from kev.app.http.metrics import STALLED

log = logging.getLogger(__name__)
R = TypeVar("R", bound=Hashable)
STALLED_S = 60.0
LOOKS = 4
"""How often a connection is looked at in that time."""
_TCP_INFO_BYTES = 256
_ACKED_AT = 120
"""Where Linux' ``tcp_info`` holds the bytes that the other side has confirmed so far."""


class Waiting(NamedTuple):
    """What waits for a reader. Equal ones, one after the other: it took nothing meanwhile.

    Attributes:
        size: Bytes, the kernel's share included. A fast reader has always as many: what it takes is written anew.
        taken: Bytes that it took before; 0 where the system does not tell.
    """

    size: int
    taken: int


class Connection(Protocol):
    """What is needed of a server's connection."""

    transport: asyncio.Transport


class Unread(Generic[R]):
    """What waits for each reader, and since when it has been just that. Pure.

    Args:
        patience_s: How long a reader may take nothing. One that is slow takes something.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since: dict[R, tuple[Waiting, float]] = {}

    def stalled(self, waiting: Mapping[R, Waiting], now_s: float) -> list[R]:
        """Those whose patience is over, given what waits for each."""
        since: dict[R, tuple[Waiting, float]] = {}
        for reader, state in waiting.items():
            before = self._since.get(reader)
            since[reader] = before if before is not None and before[0] == state else (state, now_s)
        self._since = since
        return [reader for reader, (_, at) in since.items() if now_s - at >= self._patience_s]


async def end_stalled(connections: Iterable[Connection], patience_s: float = STALLED_S) -> None:
    """Looks at the connections again and again, until it is cancelled. To the application a caller whose connection
    ends is one that left."""
    unread: Unread[asyncio.Transport] = Unread(patience_s)
    while True:
        await asyncio.sleep(patience_s / LOOKS)
        transports = [connection.transport for connection in connections]
        waiting = {transport: state for transport in transports if (state := waiting_for(transport)) is not None}
        for transport in unread.stalled(waiting, asyncio.get_running_loop().time()):
            STALLED.inc()
            log.info("a caller took nothing of its answer for %g s: its connection ends", patience_s)
            transport.abort()  # a close would wait for the reader


def waiting_for(transport: asyncio.Transport) -> Waiting | None:
    """What the reader has not taken; None while none of it is in our own memory.

    The kernel's share is needed to see a slow reader's progress: it takes megabytes before our buffer moves.
    """
    own = transport.get_write_buffer_size()
    if not own:
        return None
    door = transport.get_extra_info("socket")
    return Waiting(own + _in_kernel(door.fileno()), _taken(door))


def _in_kernel(descriptor: int) -> int:
    size = array.array("i", [0])
    try:
        fcntl.ioctl(descriptor, termios.TIOCOUTQ, size)
    except (OSError, ValueError):  # closed meanwhile
        return 0
    return size[0]


def _taken(door: socket.socket) -> int:
    try:
        told = door.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        return int(struct.unpack_from("=Q", told, _ACKED_AT)[0])
    except (OSError, AttributeError, struct.error):  # closed meanwhile, or a system that does not tell
        return 0
