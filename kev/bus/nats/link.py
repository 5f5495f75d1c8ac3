"""One connection to the broker: ask, send, listen, with errors of our own.

Every failure to get an answer is ``BusUnavailable``; every answer that is an
error is ``ApiError``. While the connection is away nothing is buffered: an
acknowledgement or a take that is sent late would do harm.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from kev.bus.feed import BusStats
from kev.bus.nats.connect import Watcher, addresses, connect_client
from kev.bus.nats.listening import Hear, Listening
from kev.bus.nats.replies import NoResponders, StreamGone, answer_of, ended, status_of, unavailable
from kev.bus.settings import BusSettings
from kev.domain.errors import BusUnavailable

log = logging.getLogger(__name__)
Headers = dict[str, str]
_MOST_ASKED = 64
_MOST_PENDING = 4_000_000


class Link:
    """The connection. One per process is enough."""

    def __init__(self, settings: BusSettings, stats: BusStats) -> None:
        self._client = Client()
        self._settings = settings
        self._timeout_s = settings.request_timeout_s
        self._where = addresses(settings)
        self._stats = stats
        # A thousand requests at once wait here and not in the broker, where they would time out.
        self._asking = asyncio.Semaphore(_MOST_ASKED)
        self._listenings: set[Listening] = set()
        self._revival: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._ended = self._gone = False
        self.on_lost: list[Callable[[], None]] = []
        self.on_back: list[Callable[[], None]] = []
        self.on_gone: list[Callable[[], None]] = []

    @classmethod
    async def open(cls, settings: BusSettings, stats: BusStats) -> Link:
        """Connects; see ``connect_client``."""
        link = cls(settings, stats)
        link._client = await link._connect()
        return link

    @property
    def connected(self) -> bool:
        """Whether the broker can be reached right now, as far as is known."""
        return bool(self._client.is_connected)

    @property
    def max_payload(self) -> int:
        """Most bytes of one message, as the broker said when it was last reached."""
        return int(self._client.max_payload)

    async def close(self) -> None:
        """Ends the connection and everything that listens."""
        self._ended = True
        self.on_lost.clear()
        self.on_back.clear()
        self.on_gone.clear()
        if self._revival is not None:
            self._revival.cancel()
        await self._client.close()
        self._gone = True

    # -- asking --------------------------------------------------------------------
    async def ask(self, subject: str, payload: bytes = b"", headers: Headers | None = None) -> Msg:
        """One request, one reply.

        Raises:
            NoResponders: nobody listens.
            BusUnavailable: no reply in time, or no connection.
        """
        async with self._asking:
            self.check()
            try:
                return await self._client.request(subject, payload, timeout=self._timeout_s, headers=headers)
            except nats.errors.NoRespondersError:
                raise self._nobody(subject) from None
            except (nats.errors.Error, OSError, TimeoutError) as error:
                raise self._unavailable(error) from None

    async def api(self, subject: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One call of the JetStream API (without its prefix): JSON both ways.

        Raises:
            ApiError: refused.
            BusUnavailable: not answered.
        """
        payload = b"" if request is None else json.dumps(request).encode()
        try:
            return answer_of(await self.ask(f"$JS.API.{subject}", payload), self._where)
        except (NoResponders, StreamGone):
            self.gone()
            raise

    async def store(self, subject: str, payload: bytes, headers: Headers | None = None) -> dict[str, Any]:
        """Publishes into a stream and returns its acknowledgement.

        Raises:
            ApiError: the stream refused it.
            Overloaded: the broker has no room on its disk.
            BusUnavailable: not answered; it may have been stored all the same.
        """
        try:
            return answer_of(await self.ask(subject, payload, headers), self._where)
        except BusUnavailable:
            # Where others listen to the subject, nobody says that a stream is gone: then it is silent.
            if self.connected:
                self.gone()
            raise

    def gone(self) -> None:
        """A stream may be missing: whoever makes them looks."""
        self._call(self.on_gone)

    async def pull(self, subject: str, payload: bytes) -> Msg:
        """One request whose reply keeps its own subject, so that it needs an inbox
        of its own (a shared inbox would not know whose it is)."""
        self.check()
        try:
            reply = await self._client.request(subject, payload, timeout=self._timeout_s, old_style=True)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            if isinstance(error, nats.errors.NoRespondersError):
                raise self._nobody(subject) from None
            raise self._unavailable(error) from None
        if status_of(reply) == "503":
            raise self._nobody(subject)
        return reply

    async def pull_some(self, subject: str, payload: bytes, most: int) -> list[Msg]:
        """One request for up to ``most`` messages; a status among the replies says that there are no more.

        What came before the time was up is returned: whoever takes messages must not forget them.

        Raises:
            NoResponders: nobody listens, or nothing came.
        """

        def complete(replies: Sequence[Msg]) -> bool:
            return len(replies) == most or ended(replies)

        replies = await self.gather(subject, payload, complete, self._timeout_s)
        if not replies:
            raise self._nobody(subject)
        return replies

    async def gather(
        self, subject: str, payload: bytes, complete: Callable[[Sequence[Msg]], bool], timeout_s: float | None = None
    ) -> list[Msg]:
        """One request, many replies: until ``complete`` says so, nobody listens, or the time is up.

        With ``timeout_s`` that is the time for all of them, and its end is no
        error. Without, it is the time to wait for each next reply, because a
        large answer may take long, and its end is an error.
        """
        self.check()
        replies: list[Msg] = []
        done = asyncio.Event()

        def hear(reply: Msg) -> None:
            if status_of(reply) != "503":
                replies.append(reply)
            if status_of(reply) == "503" or complete(replies):
                done.set()
            elif timeout_s is None and not done.is_set() and not limit.expired():
                limit.reschedule(loop.time() + self._timeout_s)

        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(timeout_s or self._timeout_s)
        inbox = self._client.new_inbox()
        listening = await self.listen(inbox, hear)
        try:
            async with limit:
                await self.publish(subject, payload, reply=inbox)
                await done.wait()
        except TimeoutError:
            if timeout_s is None:
                raise self._unavailable(None) from None
        finally:
            done.set()
            await listening.close()
        return replies

    # -- sending -------------------------------------------------------------------
    async def publish(self, subject: str, payload: bytes, headers: Headers | None = None, reply: str = "") -> None:
        """Publishes without waiting for anything."""
        self.check()
        try:
            await self._client.publish(subject, payload, reply=reply, headers=headers)
        except (nats.errors.Error, OSError) as error:
            raise self._unavailable(error) from None

    async def send(self, subject: str, payload: bytes = b"") -> None:
        """Publishes what may be lost: with a broker that is absent, or does not read,
        it is dropped and counted, not raised."""
        if self._ended:
            self.check()
        try:
            if self._client.pending_data_size > _MOST_PENDING:
                raise unavailable(self._where, "it does not read")
            await self.publish(subject, payload)
        except BusUnavailable:
            self._stats.unsent += 1

    # -- listening -----------------------------------------------------------------
    async def listen(self, subject: str, hear: Hear) -> Listening:
        """Calls ``hear`` for every message, also after a reconnect. What it raises is logged."""
        self.check()
        listening = Listening(subject, hear, self._listenings)
        try:
            await listening.begin(self._client)
        except (nats.errors.Error, OSError) as error:
            raise self._unavailable(error) from None
        return listening

    async def flush(self) -> None:
        """Waits until the broker has seen everything sent so far.

        By a message to ourselves: the client library's own flush writes its ping
        past the commands that still wait in its buffer.
        """
        echo = asyncio.Event()
        inbox = self._client.new_inbox()
        listening = await self.listen(inbox, lambda _: echo.set())
        try:
            await self.publish(inbox, b"")
            async with asyncio.timeout(self._timeout_s):
                await echo.wait()
        except TimeoutError:
            raise self._unavailable(None) from None
        finally:
            await listening.close()

    # -- inside --------------------------------------------------------------------
    def check(self) -> None:
        """Raises ``BusUnavailable`` unless there is a connection."""
        if not self._client.is_connected:
            raise unavailable(self._where, "closed" if self._ended else "no connection")

    def _unavailable(self, error: BaseException | None) -> BusUnavailable:
        late = error is None or isinstance(error, TimeoutError)
        return unavailable(self._where, "no answer in time" if late else error)

    def _nobody(self, subject: str) -> NoResponders:
        return NoResponders(f"the broker at {self._where} is not available: nobody serves {subject}")

    async def _connect(self) -> Client:
        watcher = Watcher(self._lost, self._back, self._closed, given_up=lambda: self._gone)
        return await connect_client(self._settings, self._stats, watcher)

    def _closed(self) -> None:
        """The broker itself ended the connection (e.g. its users were changed): the
        client library gives up then, we start anew."""
        if not self._ended:
            self._revival = asyncio.ensure_future(self._revive())

    async def _revive(self) -> None:
        log.error("the broker at %s ended the connection: connecting anew", self._where)
        while True:
            try:
                client = await self._connect()
                for listening in tuple(self._listenings):
                    await listening.begin(client)
            except (BusUnavailable, nats.errors.Error, OSError):
                await asyncio.sleep(self._settings.reconnect_wait_s)
            else:
                self._client = client
                self._back()
                return

    def _lost(self) -> None:
        self._call(self.on_lost)

    def _back(self) -> None:
        if self._gone:
            # Closed at the very moment in which the client library got through.
            self._closing = asyncio.ensure_future(self._client.close())
            return
        self._stats.reconnects += 1
        self._call(self.on_back)

    def _call(self, callbacks: Sequence[Callable[[], None]]) -> None:
        for call in tuple(callbacks):
            try:
                call()
            except Exception:
                log.exception("a callback of the connection failed")
