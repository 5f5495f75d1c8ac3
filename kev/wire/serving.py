"""What every gRPC service of this project has in common.

A service's ``main``::

    async def main() -> None:
        host = GrpcHost(settings.aggregator.listen, ["kev.v1.AggregatorService"])
        add_AggregatorServiceServicer_to_server(servicer, host.server)
        address = await host.start()
        await host.set_serving(True)
        say_ready("aggregator", address=address)
        try:
            await forever()
        finally:
            await host.stop(grace=5.0)

    raise SystemExit(run_service(main))
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from kev.config.keys import keyring_of
from kev.config.settings import AuthSettings, TlsSettings
from kev.domain.tenants import ONE_TENANT
from kev.wire.interceptor import ErrorInterceptor
from kev.wire.options import SERVER_OPTIONS, open_channel
from kev.wire.process import (
    StartError,
    forever,
    keep_start,
    read_ready,
    run_service,
    say_ready,
    serve_metrics,
    settings_from_command_line,
)
from kev.wire.tls import address_of, server_credentials

__all__ = [
    "GrpcHost",
    "StartError",
    "Tenant",
    "forever",
    "keep_start",
    "open_channel",
    "read_ready",
    "run_service",
    "say_ready",
    "serve_metrics",
    "settings_from_command_line",
    "tenant_of",
    "tenants_of",
    "time_left",
]

NOT_ENCRYPTED = TlsSettings()
Tenant = Callable[[grpc.aio.ServicerContext[Any, Any]], str]
"""Finds the tenant of a call."""


def tenant_of(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """The tenant of every caller, where nobody needs a key."""
    del context
    return ONE_TENANT


def tenants_of(auth: AuthSettings) -> Tenant:
    """Finds the tenant of a call by the API key in its metadata.

    What it returns raises ``Unauthenticated`` for a call without a known key.

    Raises:
        ConfigError: the keys cannot be read, or cannot be.
    """
    keyring = keyring_of(auth)
    return lambda context: keyring.tenant(_authorization(context))


def _authorization(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    told = dict(context.invocation_metadata() or ()).get("authorization", "")
    return told if isinstance(told, str) else ""


def time_left(context: grpc.aio.ServicerContext[Any, Any]) -> float | None:
    """Seconds until the caller's deadline; None if it set none."""
    left: float | None = context.time_remaining()
    return left


class GrpcHost:
    """A gRPC server with health, reflection, keepalive, limits and the error table.

    Create it inside the running event loop. ``server`` takes the servicers,
    before ``start``. Handlers raise errors of ``kev.domain.errors``; the
    caller gets their status.

    Args:
        listen: ``host:port``; port 0 takes a free one.
        services: Full names, e.g. ``kev.v1.RouterService``, for health and reflection.
        tls: The certificate, if calls are encrypted.
    """

    def __init__(self, listen: str, services: Sequence[str], tls: TlsSettings = NOT_ENCRYPTED) -> None:
        self._listen = listen
        self._tls = tls
        self._services = tuple(services)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # the stubs know the threaded one only
        self.server: grpc.aio.Server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=SERVER_OPTIONS)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)
        names = (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self.server)

    async def start(self) -> str:
        """Listens; health says NOT_SERVING until ``set_serving(True)``.

        Returns:
            The bound ``host:port``, with ``tls://`` before it if calls are encrypted.

        Raises:
            StartError: the address is bad or taken, or the certificate cannot be used.
        """
        host, _ = split_address(self._listen)
        await asyncio.to_thread(_probe, self._listen)
        try:
            port = self._open()
        except RuntimeError:
            raise StartError(f"cannot listen on {self._listen}") from None
        await self.set_serving(False)
        await self.server.start()
        return address_of(f"{host}:{port}", self._tls)

    def _open(self) -> int:
        if not self._tls.cert:
            return self.server.add_insecure_port(self._listen)
        try:
            credentials = server_credentials(self._tls)
        except ValueError as error:
            raise StartError(f"tls.cert, tls.key: {error}") from None
        return self.server.add_secure_port(self._listen, credentials)

    async def set_serving(self, serving: bool) -> None:
        """Sets the health of each service and of the whole."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *self._services):
            await self._health.set(name, status)

    async def follow_health(self, healthy: Callable[[], bool], every_s: float = 0.5) -> None:
        """SERVING while ``healthy`` says so, asked again and again; runs until it is cancelled."""
        serving: bool | None = None
        while True:
            now = healthy()
            if now is not serving:
                serving = now
                await self.set_serving(now)
            await asyncio.sleep(every_s)

    async def stop(self, grace: float) -> None:
        """Health NOT_SERVING, no new calls; running ones have ``grace`` seconds to end."""
        await self._health.enter_graceful_shutdown()
        await self.server.stop(grace)


def split_address(address: str) -> tuple[str, int]:
    """Host (with its brackets, if any) and port of ``host:port``.

    Raises:
        StartError: it is not of that form.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise StartError(f"cannot listen on {address!r}: must be host:port")
    return host, int(port)


def _probe(address: str) -> None:
    """Binds once and lets go: a taken port gives one clear line, not gRPC's log."""
    host, port = split_address(address)
    try:
        family, kind, proto, _, where = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        raise StartError(f"cannot listen on {address}: {error.strerror or error}") from None
