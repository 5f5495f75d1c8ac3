"""The first connection: who we are, TLS, one clear line when it fails."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import ssl
from collections.abc import Callable
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


def addresses(settings: BusSettings) -> str:
    """The brokers' addresses without credentials, for messages."""
    return ", ".join(urlsplit(url if "//" in url else f"//{url}").netloc.rpartition("@")[2] for url in settings.urls)


async def connect_client(
    client: Client,
    settings: BusSettings,
    stats: BusStats,
    lost: Callable[[], None],
    back: Callable[[], None],
) -> None:
    """Connects and keeps reconnecting for ever after.

    Raises:
        BusUnavailable: no broker within ``connect_timeout_s``, credentials
            refused, or a broker that is too old; one line with the address.
    """
    attempt = _Attempt(stats)
    connecting = asyncio.ensure_future(client.connect(**_options(settings, attempt, lost, back)))
    refused = asyncio.ensure_future(attempt.refused.wait())
    try:
        await asyncio.wait(
            (connecting, refused), timeout=settings.connect_timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        if not connecting.done():
            raise BusUnavailable(f"no broker at {addresses(settings)}: {attempt.why}")
        connecting.result()
        _check_version(client, settings)
    except BaseException as error:
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        await client.close()
        if isinstance(error, nats.errors.Error | OSError):
            raise BusUnavailable(f"no broker at {addresses(settings)}: {_plain(error)}") from None
        raise
    finally:
        refused.cancel()
        attempt.connected = True


class _Attempt:
    """What the client library reports while and after it connects."""

    def __init__(self, stats: BusStats) -> None:
        self._stats = stats
        self.connected = False
        self.why = "no answer"
        self.refused = asyncio.Event()

    async def on_error(self, error: Exception) -> None:
        self._stats.errors += 1
        self.why = _plain(error)
        log.log(logging.DEBUG if not self.connected else logging.WARNING, "broker connection: %s", self.why)
        if not self.connected and "authoriz" in self.why.lower():
            self.refused.set()


def _options(
    settings: BusSettings, attempt: _Attempt, lost: Callable[[], None], back: Callable[[], None]
) -> dict[str, Any]:
    async def on_lost() -> None:
        lost()

    async def on_back() -> None:
        back()

    options: dict[str, Any] = {
        "servers": list(settings.urls),
        "name": settings.name,
        "error_cb": attempt.on_error,
        "disconnected_cb": on_lost,
        "reconnected_cb": on_back,
        "connect_timeout": settings.connect_timeout_s,
        "reconnect_time_wait": settings.reconnect_wait_s,
        "max_reconnect_attempts": -1,
        "ping_interval": _PING_S,
        # Nothing is buffered while the connection is away: what is sent late does harm.
        "pending_size": 0,
    }
    named = ("user", "password", "token")
    options |= {name: getattr(settings, name) for name in named if getattr(settings, name)}
    if settings.credentials:
        options["user_credentials"] = _credentials(settings.credentials)
    if settings.tls_ca or settings.tls_cert:
        options["tls"] = _tls(settings)
    return options


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


def _plain(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error).removeprefix("nats: ").strip("'") or type(error).__name__
