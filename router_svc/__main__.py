"""The router as a process: ``python -m router_svc --config kev.yaml [--set section.key=value ...]``."""

from __future__ import annotations

import asyncio
import sys

import grpc

from kev.bus.nats import NatsBus, TopologyMismatch
from kev.config.settings import Settings
from kev.tokens.model_files import ModelNotFound, resolve_model
from kev.tokens.tokenizer import Tokenizer, TokenizerError
from kev.v1.aggregator_pb2_grpc import add_AggregatorServiceServicer_to_server
from kev.v1.context_pb2_grpc import add_ContextServiceServicer_to_server
from kev.v1.router_pb2_grpc import add_RouterServiceServicer_to_server
from kev.wire.bus_settings import bus_settings
from kev.wire.relay import RelayAggregator
from kev.wire.serving import (
    GrpcHost,
    StartError,
    forever,
    keep_start,
    open_channel,
    run_service,
    say_ready,
    serve_metrics,
    settings_from_command_line,
    tenants_of,
)
from router_svc.context_service import NAME as CONTEXTS
from router_svc.context_service import ContextServicer
from router_svc.router import Router
from router_svc.service import NAME, RouterServicer

DRAIN_S = 10.0
"""How long running calls may take to end after SIGTERM."""
AGGREGATOR = "kev.v1.AggregatorService"
"""Relayed, so that a simple client needs one address."""


async def serve(settings: Settings) -> None:
    """Serves until cancelled, then drains: health NOT_SERVING, no new calls, running ones end."""
    tenant = tenants_of(settings.auth)
    tokenizer = await asyncio.to_thread(_tokenizer, settings)
    bus = await NatsBus.connect(bus_settings(settings, "router"))
    try:
        router = Router(bus, settings, tokenizer)
        metrics = serve_metrics(settings.metrics)
        host = GrpcHost(settings.router.listen, [NAME, CONTEXTS, AGGREGATOR], settings.tls)
        async with _to_aggregator(settings) as aggregator:
            add_RouterServiceServicer_to_server(RouterServicer(router, aggregator, tenant), host.server)  # type: ignore[no-untyped-call]
            add_ContextServiceServicer_to_server(ContextServicer(router.contexts, tenant), host.server)  # type: ignore[no-untyped-call]
            add_AggregatorServiceServicer_to_server(RelayAggregator(aggregator), host.server)  # type: ignore[no-untyped-call]
            address = await host.start()
            await router.start()
            health = asyncio.create_task(host.follow_health(lambda: router.bus_up))
            keep_start()
            try:
                say_ready("router", address=address, metrics=metrics)
                await forever()
            finally:
                health.cancel()
                await host.stop(DRAIN_S)
                await router.close()
    finally:
        await bus.close()


def _to_aggregator(settings: Settings) -> grpc.aio.Channel:
    try:
        return open_channel(settings.router.aggregator, settings.tls.ca)
    except ValueError as error:
        raise StartError(f"tls.ca: {error}") from None


def _tokenizer(settings: Settings) -> Tokenizer:
    try:
        return Tokenizer.load(resolve_model(settings.core.model_path))
    except (ModelNotFound, TokenizerError, ValueError, OSError) as error:
        raise StartError(str(error)) from error


def main() -> int:
    """Runs the service; returns the exit code."""

    async def run() -> None:
        await serve(settings_from_command_line("router_svc"))

    return run_service(run, known=(TopologyMismatch,))


if __name__ == "__main__":
    sys.exit(main())
