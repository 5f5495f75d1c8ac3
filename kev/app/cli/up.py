"""``kev up``: a local cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kev.app.cli import options
from kev.app.cli.running import known_errors
from kev.wire.process import forever, run_service, say_ready


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    def up(
        workers: Annotated[
            int | None, typer.Option("--workers", min=1, max=64, help="Worker processes; 1, or one per device.")
        ] = None,
        config: options.Config = None,
        free_ports: Annotated[
            bool, typer.Option("--free-ports", help="Take free ports instead of the configured ones.")
        ] = False,
        data: Annotated[
            Path | None, typer.Option("--data", help="Keep the broker's store there; else it is temporary.")
        ] = None,
        sets: options.Sets = None,
    ) -> None:
        """Starts a broker, a router, workers and an aggregator as processes of this machine; Ctrl-C stops them."""

        async def main() -> None:
            await _up(workers, config, free_ports, data, sets)

        raise typer.Exit(run_service(main, known=known_errors()))


async def _up(
    workers: int | None, config: Path | None, free_ports: bool, data: Path | None, sets: list[str] | None
) -> None:
    from kev.app.cluster.cluster import Cluster
    from kev.app.cluster.devices import count_gpus, worker_devices
    from kev.tokens.model_files import resolve_model

    settings = options.settings_of(config, sets)
    resolve_model(settings.core.model_path)
    devices = worker_devices(settings, workers, count_gpus)
    flags = options.flags_of(sets)
    path = str(config) if config else ""
    cluster = Cluster(
        settings, workers=len(devices), devices=devices, config=path, flags=flags, free_ports=free_ports, data=data
    )
    async with cluster as at:
        say_ready("kev", router=at.router, aggregator=at.aggregator, nats=at.nats, workers=",".join(at.workers))
        await forever()
