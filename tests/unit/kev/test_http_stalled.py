"""A caller who stops reading is cut off, whether its answer is still being made or not; one who is slow is not."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from prometheus_client import REGISTRY
from starlette.types import Receive, Scope, Send

from kev.app.http.requests import gone
from kev.app.http.server import listen_on, open_door, serve
from kev.app.http.stalled import Unread, Waiting, waiting_for

ASK = b"GET / HTTP/1.1\r\nhost: kev\r\n\r\n"
SMALL = 4096
PIECE = b"x" * 65_536
WHOLE = PIECE * 64
DEADLINE_S = 20


def test_who_takes_nothing_for_long_enough_has_stalled() -> None:
    unread: Unread[str] = Unread(10.0)
    five, four = Waiting(5, 0), Waiting(4, 0)
    assert unread.stalled({"a": five, "b": five}, 0.0) == []
    assert unread.stalled({"a": five, "b": five}, 9.0) == []
    assert unread.stalled({"a": five, "b": four}, 10.0) == ["a"]
    assert unread.stalled({"b": four}, 19.0) == []
    assert unread.stalled({"b": four}, 20.0) == ["b"]


def test_for_whom_as_much_waits_as_before_has_not_stalled_if_it_took_some() -> None:
    unread: Unread[str] = Unread(10.0)
    assert unread.stalled({"a": Waiting(5, 0)}, 0.0) == []
    assert unread.stalled({"a": Waiting(5, 1)}, 10.0) == []
    assert unread.stalled({"a": Waiting(5, 1)}, 20.0) == ["a"]


def test_who_had_nothing_waiting_meanwhile_has_not_stalled() -> None:
    unread: Unread[str] = Unread(10.0)
    assert unread.stalled({"a": Waiting(5, 0)}, 0.0) == []
    assert unread.stalled({}, 5.0) == []
    assert unread.stalled({"a": Waiting(5, 0)}, 11.0) == []


@asynccontextmanager
async def stalled_caller(app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> AsyncIterator[asyncio.StreamReader]:
    """A caller of the app who has asked and not read, and whom little can wait for outside of our memory."""
    with listen_on("127.0.0.1", 0) as door, socket.socket() as caller:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        open_door(door, 8)
        serving = asyncio.create_task(serve(app, door, stalled_s=0.1))
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        caller.connect(door.getsockname())
        reader, writer = await asyncio.open_connection(sock=caller, limit=1)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(ASK)
        try:
            yield reader
        finally:
            writer.close()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


def cut() -> float:
    return REGISTRY.get_sample_value("kev_http_stalled_readers_total") or 0.0


async def test_to_the_app_a_caller_who_reads_nothing_has_left() -> None:
    told = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def write() -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": PIECE, "more_body": True})

        await receive()
        writing = asyncio.create_task(write())
        await gone(receive)
        writing.cancel()
        told.set()

    before = cut()
    async with asyncio.timeout(DEADLINE_S), stalled_caller(app):
        await told.wait()
    assert cut() == before + 1


async def test_an_answer_that_is_whole_is_not_kept_for_a_caller_who_reads_nothing() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": WHOLE, "more_body": False})

    before = cut()
    async with asyncio.timeout(DEADLINE_S), stalled_caller(app) as reader:
        while cut() == before:  # noqa: ASYNC110 - seen from outside only
            await asyncio.sleep(0.01)
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        with suppress(ConnectionError):
            assert len(await reader.read()) < len(WHOLE)


async def test_what_a_slow_reader_takes_is_seen() -> None:
    """It lies in the kernel: our own buffer moves only after megabytes."""
    taken: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda _, writer: taken.set_result(writer), "127.0.0.1", 0)
    async with asyncio.timeout(DEADLINE_S), server:
        with socket.create_connection(server.sockets[0].getsockname()) as caller:
            transport = (await taken).transport
            assert waiting_for(transport) is None
            transport.write(PIECE * 256)
            while (before := waiting(transport)) != await settled(transport):
                pass
            caller.setblocking(False)
            while waiting(transport) == before:
                await asyncio.get_running_loop().sock_recv(caller, len(PIECE))
            while (after := waiting(transport)) != await settled(transport):
                pass
            assert after.size < before.size
            assert after.taken - before.taken == (before.size - after.size if sys.platform == "linux" else 0)
            transport.abort()


def waiting(transport: asyncio.WriteTransport) -> Waiting:
    assert isinstance(transport, asyncio.Transport)
    state = waiting_for(transport)
    assert state is not None
    return state


async def settled(transport: asyncio.WriteTransport) -> Waiting:
    """What waits a moment later."""
    await asyncio.sleep(0.05)
    return waiting(transport)
