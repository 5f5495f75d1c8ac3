"""The aggregator as a process: ``python -m aggregator_svc --config kev.yaml [--set section.key=value ...]``."""

from __future__ import annotations

import asyncio
import sys

from aggregator_svc.aggregator import Aggregator
from aggregator_svc.service import SERVICE, AggregatorServicer
from kev.bus.nats import NatsBus, TopologyMismatch
from kev.config.settings import Settings
from kev.v1.aggregator_pb2_grpc import add_AggregatorServiceServicer_to_server
from kev.wire.bus_settings import bus_settings
from kev.wire.serving import (
    GrpcHost,
    forever,
    keep_start,
    run_service,
    say_ready,
    serve_metrics,
    settings_from_command_line,
    tenants_of,
)

DRAIN_S = 5.0
"""How long streams may go on after SIGTERM; then they are told to resume elsewhere."""
_TELL_S = 1.0


async def serve(settings: Settings) -> None:
    """Serves until cancelled, then drains: health NOT_SERVING, no new calls, running ones end or move on."""
    tenant = tenants_of(settings.auth)
    bus = await NatsBus.connect(bus_settings(settings, "aggregator"))
    try:
        aggregator = Aggregator(bus, settings)
        metrics = serve_metrics(settings.metrics)
        host = GrpcHost(settings.aggregator.listen, [SERVICE], settings.tls)
        add_AggregatorServiceServicer_to_server(AggregatorServicer(aggregator, tenant=tenant), host.server)  # type: ignore[no-untyped-call]
        address = await host.start()
        health = asyncio.create_task(host.follow_health(lambda: bus.connected))
        keep_start()
        try:
            say_ready("aggregator", address=address, metrics=metrics)
            await forever()
        finally:
            health.cancel()
            await drain(host, aggregator, DRAIN_S)
    finally:
        await bus.close()


async def drain(host: GrpcHost, aggregator: Aggregator, patience_s: float) -> None:
    """No new calls; running ones may end by themselves, then their readers are sent elsewhere."""
    stopping = asyncio.create_task(host.stop(patience_s + _TELL_S))
    await asyncio.wait({stopping}, timeout=patience_s)
    await aggregator.close()
    await stopping


def main() -> int:
    """Runs the service; returns the exit code."""

    async def run() -> None:
        await serve(settings_from_command_line("aggregator_svc"))

    return run_service(run, known=(TopologyMismatch,))


if __name__ == "__main__":
    sys.exit(main())
