"""A worker as a process: ``python -m inference_svc --config kev.yaml [--worker-id ID] [--set section.key=value]``."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from prometheus_client import REGISTRY

from inference_svc.loading import LoadedModel, ModelUnusable, load_model, worker_id_of
from inference_svc.metrics import WorkerMetrics
from inference_svc.service import NAME, WorkerServicer
from inference_svc.worker import Drained, Worker, WorkerFailed
from kev.bus.messages import READY
from kev.bus.nats import NatsBus, TopologyMismatch
from kev.bus.port import Bus
from kev.config.settings import Settings
from kev.telemetry.logs import always
from kev.v1.worker_pb2_grpc import add_WorkerServiceServicer_to_server
from kev.wire.bus_settings import bus_settings
from kev.wire.serving import (
    GrpcHost,
    keep_start,
    run_service,
    say_ready,
    serve_metrics,
    settings_from_command_line,
)

DRAIN_S = 20.0
"""How long running questions may take to end after SIGTERM."""
CALLS_END_S = 2.0
HEALTH_S = 0.2


async def serve(settings: Settings) -> None:
    """Serves until drained or told to stop, and then drains."""
    worker_id = worker_id_of(settings)
    always(worker=worker_id)
    bus = await NatsBus.connect(bus_settings(settings, f"worker {worker_id}"))
    try:
        model = await asyncio.to_thread(load_model, settings)
        try:
            await _serve(settings, bus, model, worker_id)
        finally:
            model.backend.close()
    finally:
        await bus.close()


async def _serve(settings: Settings, bus: Bus, model: LoadedModel, worker_id: str) -> None:
    metrics = WorkerMetrics(
        settings.router.channel_pool_size, model.backend.pages, REGISTRY, buckets=settings.router.hash_buckets
    )
    worker = Worker(
        bus,
        settings,
        model.backend,
        model.tokenizer,
        worker_id=worker_id,
        model_digest=model.digest,
        metrics=metrics,
    )
    metrics_address = serve_metrics(settings.metrics)
    host = GrpcHost(settings.inference.listen, [NAME], settings.tls)

    async def drain(grace_s: float) -> Drained:
        await host.set_serving(False)
        return await worker.drain(grace_s)

    servicer = WorkerServicer(worker, settings, Path(model.path).name, drain)
    add_WorkerServiceServicer_to_server(servicer, host.server)  # type: ignore[no-untyped-call]
    address = await host.start()
    # SERVING while the worker takes questions and its model advances.
    health = asyncio.ensure_future(host.follow_health(lambda: worker.state == READY and worker.healthy, HEALTH_S))
    try:
        await worker.start(address)
        await host.set_serving(True)
        keep_start()
        say_ready("worker", id=worker_id, address=address, metrics=metrics_address)
        await _run(worker, drain)
    finally:
        health.cancel()
        await host.stop(CALLS_END_S)
        await worker.close()


async def _run(worker: Worker, drain: Callable[[float], Awaitable[Drained]]) -> None:
    """Runs until drained. When the process is told to stop, drains first: the worker serves on meanwhile."""
    running = asyncio.ensure_future(worker.run())
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await drain(DRAIN_S)
        await running
        raise


def main() -> int:
    """Runs the service; returns the exit code."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--worker-id")
    own, rest = parser.parse_known_args()
    if own.worker_id is not None:
        rest += ["--set", f"inference.worker_id={own.worker_id}"]

    async def run() -> None:
        await serve(settings_from_command_line("inference_svc", rest))

    return run_service(run, known=(ModelUnusable, TopologyMismatch, WorkerFailed))


if __name__ == "__main__":
    sys.exit(main())
