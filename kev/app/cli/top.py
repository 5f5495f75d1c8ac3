"""``kev top``: channels, buckets and rates, live."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated

import typer

from kev.app.cli.running import FAILED, run_command
from kev.wire.process import StartError


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    def top(
        addresses: Annotated[
            list[str],
            typer.Argument(
                metavar="HOST:PORT...", help="Metrics endpoints of routers, workers and aggregators (metrics.port)."
            ),
        ],
        every: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between two readings.")] = 2.0,
        once: Annotated[bool, typer.Option("--once", help="Print one interval and leave.")] = False,
    ) -> None:
        """Shows a running cluster, live: rates, channels by worker, hot buckets. Ctrl-C ends it.

        A name that stands for several replicas means all of them:
        kev top router:9100 inference:9100 aggregator:9100
        """
        run_command(lambda: _top(addresses, every, once))


async def _top(addresses: list[str], every: float, once: bool) -> int:
    from rich.console import Console
    from rich.live import Live

    from kev.app.top.figures import Figures
    from kev.app.top.scrape import read
    from kev.app.top.view import view

    check_addresses(addresses)
    console = Console()
    before = await read(addresses)
    if not before.values:
        raise StartError(f"no metrics at {', '.join(addresses)}: is metrics.port set there?")
    with Live(console=console, auto_refresh=False, transient=once) as live:
        while True:
            await asyncio.sleep(every)
            now = await read(addresses)
            if once:
                console.print(view(Figures(before, now)))
                return FAILED if now.missing else 0
            live.update(view(Figures(before, now)), refresh=True)
            before = now


def check_addresses(addresses: Iterable[str]) -> None:
    """Raises ``StartError`` for one that is not HOST:PORT."""
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise StartError(f"{address}: must be HOST:PORT")
