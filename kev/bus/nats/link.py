"""One connection to the broker: ask, send, listen, with errors of our own.

Every failure to get an answer is ``BusUnavailable``; every answer that is an
error is ``ApiError``. While the connection is away nothing is buffered: an
acknowledgement or a take that is sent late would do harm.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from kev.bus.feed import BusStats
from kev.bus.nats.connect import addresses, connect_client
from kev.bus.settings import BusSettings
from kev.domain.errors import BusUnavailable, Overloaded

log = logging.getLogger(__name__)
Headers = dict[str, str]
Hear = Callable[[Msg], Awaitable[None] | None]

STORE_FAILED = 10077
_MOST_ASKED = 64
_NO_ROOM = (10023, 10028, 10047)


class ApiError(Exception):
    """The broker's refusal. ``err_code`` is its five-digit code."""

    def __init__(self, err_code: int, description: str) -> None:
        super().__init__(f"{description} ({err_code})")
        self.err_code = err_code
        self.description = description


class NoResponders(BusUnavailable):
    """Nobody listens to the subject: no such consumer, or a stream without a leader."""


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
        self._listenings: dict[Listening, str] = {}
        self._revival: asyncio.Task[None] | None = None
        self._ended = False
        self.on_lost: list[Callable[[], None]] = []
        self.on_back: list[Callable[[], None]] = []

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

    async def close(self) -> None:
        """Ends the connection and everything that listens."""
        self._ended = True
        self.on_lost.clear()
        self.on_back.clear()
        if self._revival is not None:
            self._revival.cancel()
        await self._client.close()

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
                raise NoResponders(self._text(f"nobody serves {subject}")) from None
            except (nats.errors.Error, OSError, TimeoutError) as error:
                raise self._unavailable(error) from None

    async def api(self, subject: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One call of the JetStream API (without its prefix): JSON both ways.

        Raises:
            ApiError: refused.
            BusUnavailable: not answered.
        """
        reply = await self.ask(f"$JS.API.{subject}", b"" if request is None else json.dumps(request).encode())
        return self._answer(reply)

    async def store(self, subject: str, payload: bytes, headers: Headers | None = None) -> dict[str, Any]:
        """Publishes into a stream and returns its acknowledgement.

        Raises:
            ApiError: the stream refused it.
            Overloaded: the broker has no room on its disk.
            BusUnavailable: not answered; it may have been stored all the same.
        """
        return self._answer(await self.ask(subject, payload, headers))

    async def pull(self, subject: str, payload: bytes) -> Msg:
        """One request whose reply keeps its own subject, so that it needs an inbox
        of its own (a shared inbox would not know whose it is)."""
        self.check()
        try:
            reply = await self._client.request(subject, payload, timeout=self._timeout_s, old_style=True)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            if isinstance(error, nats.errors.NoRespondersError):
                raise NoResponders(self._text(f"nobody serves {subject}")) from None
            raise self._unavailable(error) from None
        if status_of(reply) == "503":
            raise NoResponders(self._text(f"nobody serves {subject}"))
        return reply

    async def gather(
        self, subject: str, payload: bytes, complete: Callable[[Sequence[Msg]], bool], timeout_s: float | None = None
    ) -> list[Msg]:
        """One request, many replies: until ``complete`` says so, nobody listens, or the time is up.

        With ``timeout_s`` the time being up is no error; without it is.
        """
        self.check()
        replies: list[Msg] = []
        done = asyncio.Event()

        def hear(reply: Msg) -> None:
            if status_of(reply) != "503":
                replies.append(reply)
            if status_of(reply) == "503" or complete(replies):
                done.set()

        inbox = self._client.new_inbox()
        listening = await self.listen(inbox, hear)
        try:
            await self.publish(subject, payload, reply=inbox)
            async with asyncio.timeout(timeout_s or self._timeout_s):
                await done.wait()
        except TimeoutError:
            if timeout_s is None:
                raise self._unavailable(None) from None
        finally:
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
        """Publishes what may be lost: an absent broker is counted, not raised."""
        if self._client.is_closed:
            self.check()
        try:
            await self.publish(subject, payload)
        except BusUnavailable:
            self._stats.unsent += 1

    # -- listening -----------------------------------------------------------------
    async def listen(self, subject: str, hear: Hear) -> Listening:
        """Calls ``hear`` for every message, also after a reconnect. What it raises is logged."""
        self.check()
        listening = Listening(hear, self._listenings)
        try:
            listening.subscription = await self._client.subscribe(subject, cb=listening.run)
        except (nats.errors.Error, OSError) as error:
            raise self._unavailable(error) from None
        self._listenings[listening] = subject
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
    def _answer(self, reply: Msg) -> dict[str, Any]:
        if not reply.data:
            return {}
        answer: dict[str, Any] = json.loads(reply.data)
        if "error" in answer:
            raise self._refusal(answer["error"])
        return answer

    def _refusal(self, error: Mapping[str, Any]) -> Exception:
        code, text = int(error.get("err_code", 0)), str(error.get("description", ""))
        full = code == STORE_FAILED and text.startswith("maximum") and "per subject" not in text
        if code in _NO_ROOM or full:
            return Overloaded(f"the broker has no room: {text}")
        unavailable = int(error.get("code", 0)) == 503 and not (code == STORE_FAILED and "per subject" in text)
        return BusUnavailable(self._text(text)) if unavailable else ApiError(code, text)

    def check(self) -> None:
        """Raises ``BusUnavailable`` unless there is a connection."""
        if not self._client.is_connected:
            raise BusUnavailable(self._text("closed" if self._client.is_closed else "no connection"))

    def _unavailable(self, error: BaseException | None) -> BusUnavailable:
        why = "no answer in time" if error is None or isinstance(error, TimeoutError) else str(error)
        return BusUnavailable(self._text(why.removeprefix("nats: ")))

    def _text(self, why: str) -> str:
        return f"the broker at {self._where} is not available: {why}"

    async def _connect(self) -> Client:
        return await connect_client(self._settings, self._stats, self._lost, self._back, self._closed)

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
                for listening, subject in tuple(self._listenings.items()):
                    listening.subscription = await client.subscribe(subject, cb=listening.run)
            except (BusUnavailable, nats.errors.Error, OSError):
                await asyncio.sleep(self._settings.reconnect_wait_s)
            else:
                self._client = client
                self._back()
                return

    def _lost(self) -> None:
        for call in self.on_lost:
            call()

    def _back(self) -> None:
        self._stats.reconnects += 1
        for call in tuple(self.on_back):
            call()


class Listening:
    """A running subscription; a ``Subscription`` of the bus."""

    def __init__(self, hear: Hear, registry: dict[Listening, str]) -> None:
        self._hear = hear
        self._registry = registry
        self._open = True
        self.subscription: NatsSubscription | None = None

    async def run(self, message: Msg) -> None:
        """Hands one message over."""
        if not self._open:
            return
        try:
            answering = self._hear(message)
            if answering is not None:
                await answering
        except Exception:
            log.exception("a listener failed on %s", message.subject)

    async def close(self) -> None:
        """Ends it; no callback runs afterwards."""
        self._open = False
        self._registry.pop(self, None)
        subscription, self.subscription = self.subscription, None
        if subscription is None:
            return
        try:
            await subscription.unsubscribe()
        except (nats.errors.Error, OSError):
            log.debug("unsubscribing without a connection: the broker forgets it anyway")


def status_of(message: Msg) -> str:
    """The status header of a reply, e.g. ``404``; empty for a message."""
    return (message.headers or {}).get("Status", "")
