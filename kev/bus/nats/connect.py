"""The first connection: who we are, TLS, one clear line when it fails."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client

from kev.bus.feed import BusStats
from kev.bus.settings import BusSettings
from kev.domain.errors import BusUnavailable, InvalidArgument

log = logging.getLogger(__name__)
_OLDEST = (2, 12)
_PING_S = 10
_PAYLOAD = 2_000_000
"""Bytes of one message that a full batch with long labels, or a very long answer, may need."""
_INBOX_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""User names that may stand in a subject; others share the library's own inbox."""
_RESET = "it closed the connection"


def addresses(settings: BusSettings) -> str:
    """The brokers' addresses without credentials, for messages."""
    return ", ".join(urlsplit(url if "//" in url else f"//{url}").netloc.rpartition("@")[2] for url in settings.urls)


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who wants to know about a connection.

    Attributes:
        lost, back, closed: Called when the connection goes, when it is back, and
            when it was ended for good, by us or by the broker.
        given_up: Whether nobody needs it any more.
    """

    lost: Callable[[], None]
    back: Callable[[], None]
    closed: Callable[[], None]
    given_up: Callable[[], bool]


async def connect_client(settings: BusSettings, stats: BusStats, watcher: Watcher) -> Client:
    """A connected client, which reconnects until it is closed.

    Raises:
        BusUnavailable: no broker within ``connect_timeout_s``, credentials
            refused, or a broker that is too old; one line with the address.
    """
    attempt = _Attempt(stats, watcher)
    options = _options(settings, attempt, watcher)
    until = time.monotonic() + settings.connect_timeout_s
    while True:
        client = _Client()
        try:
            await _connect_once(client, options, attempt, max(0.1, until - time.monotonic()))
            _check_version(client, settings)
            _check_payload(client, settings)
        except (nats.errors.Error, OSError) as error:
            await _discard(client)
            why = attempt.why if isinstance(error, TimeoutError) else _plain(error)
            if attempt.refused.is_set() or time.monotonic() >= until:
                hint = "; are the credentials right?" if why == _RESET else ""
                raise BusUnavailable(f"no broker at {addresses(settings)}: {why}{hint}") from None
            await asyncio.sleep(settings.reconnect_wait_s)
        except BaseException:
            await _discard(client)
            raise
        else:
            attempt.connected = True
            return client


class _Client(Client):
    """Does not speak in the clear to a broker of ``tls://``: the library encrypts only if the broker asks for it, so
    that whoever stands in between could read the password."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        server = self._current_server
        if initial_connection and server and server.uri.scheme == "tls" and not info.get("tls_required"):
            raise nats.errors.Error("nats: it does not encrypt")
        await super()._process_info(info, initial_connection)


async def _connect_once(client: Client, options: dict[str, Any], attempt: _Attempt, timeout_s: float) -> None:
    """The library tries again and again: until it succeeds, the time is up
    (``TimeoutError``), or the broker refused the credentials (also ``TimeoutError``,
    because there is nothing to wait for)."""
    attempt.over = False
    connecting = asyncio.ensure_future(client.connect(**options))
    refused = asyncio.ensure_future(attempt.refused.wait())
    try:
        await asyncio.wait((connecting, refused), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done():
            raise TimeoutError
        connecting.result()
    finally:
        attempt.over = not connecting.done()
        refused.cancel()
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)


async def _discard(client: Client) -> None:
    try:
        await client.close()
    except (nats.errors.Error, OSError) as error:
        log.debug("closing a connection that never stood: %s", error)


class _Attempt:
    """What the client library reports while and after it connects.

    Attributes:
        over: Nobody waits for the connection any more.
    """

    def __init__(self, stats: BusStats, watcher: Watcher) -> None:
        self._stats = stats
        self._watcher = watcher
        self.connected = False
        self.over = False
        self.why = "no answer"
        self.refused = asyncio.Event()

    async def on_error(self, error: Exception) -> None:
        self._stats.errors += 1
        before, self.why = self.why, _plain(error)
        # A broker that is away is reported once, not at every attempt to reconnect.
        level = logging.WARNING if self.connected and self.why != before else logging.DEBUG
        log.log(level, "broker connection: %s", self.why)
        if not self.connected and "authoriz" in self.why.lower():
            self.refused.set()
        if self.over or self._watcher.given_up():
            # The library's own cancel can get lost in ``asyncio.wait_for`` when a
            # connection is refused at that moment; then it would try for ever.
            raise asyncio.CancelledError


def _options(settings: BusSettings, attempt: _Attempt, watcher: Watcher) -> dict[str, Any]:
    options: dict[str, Any] = {
        "servers": list(settings.urls),
        "name": settings.name,
        "error_cb": attempt.on_error,
        "disconnected_cb": _asynchronous(watcher.lost, attempt),
        "reconnected_cb": _asynchronous(watcher.back, attempt),
        "closed_cb": _asynchronous(watcher.closed, attempt),
        "connect_timeout": settings.connect_timeout_s,
        "reconnect_time_wait": settings.reconnect_wait_s,
        "max_reconnect_attempts": -1,
        "ping_interval": _PING_S,
        # Nothing is buffered while the connection is away: what is sent late does harm.
        "pending_size": 0,
    }
    named = ("user", "password", "token")
    options |= {name: getattr(settings, name) for name in named if getattr(settings, name)}
    if _INBOX_NAME.fullmatch(settings.user):
        # Replies come to a place of this user's own, which its permissions can name.
        options["inbox_prefix"] = f"_INBOX_{settings.user}"
    if settings.credentials:
        options["user_credentials"] = _credentials(settings.credentials)
    if settings.tls_ca or settings.tls_cert:
        options["tls"] = _tls(settings)
    return options


def _asynchronous(call: Callable[[], None], attempt: _Attempt) -> Callable[[], Awaitable[None]]:
    """As the client library wants its callbacks; silent until the first connection stands."""

    async def called() -> None:
        if attempt.connected:
            call()

    return called


def _credentials(path: str) -> str:
    if importlib.util.find_spec("nkeys") is None:
        raise InvalidArgument("credentials", "needs the package nkeys: pip install nkeys")
    return path


def _tls(settings: BusSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca or None)
        if settings.tls_cert:
            context.load_cert_chain(settings.tls_cert, settings.tls_key or None)
    except OSError as error:
        raise InvalidArgument("tls_ca, tls_cert, tls_key", f"readable PEM files: {error}") from None
    return context


def _check_version(client: Client, settings: BusSettings) -> None:
    version = client.connected_server_version
    if (version.major, version.minor) < _OLDEST:
        least = ".".join(map(str, _OLDEST))
        raise BusUnavailable(
            f"the broker at {addresses(settings)} is nats-server {version}; {least} or later is needed"
        )


def _check_payload(client: Client, settings: BusSettings) -> None:
    if client.max_payload < _PAYLOAD:
        log.warning(
            "the broker at %s takes messages of at most %d bytes: set its max_payload to 8MB",
            addresses(settings),
            client.max_payload,
        )


def _plain(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return _RESET
    return str(error).removeprefix("nats: ").strip("'") or type(error).__name__
