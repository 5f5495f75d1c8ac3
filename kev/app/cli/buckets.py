"""``kev buckets``: how the hash buckets lie, live; ``kev buckets fit``: a codebook from questions."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kev.app.cli import options
from kev.app.cli.plain import console
from kev.app.cli.running import FAILED, run_command
from kev.app.cli.top import check_addresses
from kev.config.settings import Settings
from kev.wire.process import StartError

if TYPE_CHECKING:
    from kev.app.top.figures import Figures

Metrics = Annotated[
    list[str] | None, typer.Option("--metrics", metavar="HOST:PORT", help="Metrics endpoint of a router; repeatable.")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    buckets = typer.Typer(rich_markup_mode=None, invoke_without_command=True)

    @buckets.callback()
    def live(
        context: typer.Context,
        metrics: Metrics = None,
        every: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between two readings.")] = 2.0,
        once: Annotated[bool, typer.Option("--once", help="Print one interval and leave.")] = False,
        everything: Annotated[bool, typer.Option("--all", help="Also buckets that got no question.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="One interval as JSON lines.")] = False,
    ) -> None:
        """The hash buckets of a running cluster, live: share, home, depth of its queue, breaker.

        kev buckets --metrics router:9100 shows them until Ctrl-C;
        kev buckets fit FILE fits a codebook for semantic_hash.
        """
        if context.invoked_subcommand is None:
            run_command(lambda: _live(metrics or [], every, once or as_json, everything, as_json))

    @buckets.command()
    def fit(
        file: Annotated[str, typer.Argument(help="Questions as for kev run; an object may name its intent.")],
        out: Annotated[Path, typer.Option("--out", help="Where the codebook goes.")] = Path("codebook.json"),
        count: Annotated[
            int | None, typer.Option("--buckets", min=2, max=65536, help="router.hash_buckets by default.")
        ] = None,
        seed: Annotated[int, typer.Option("--seed", min=0, help="Another one gives another codebook.")] = 0,
        as_json: Annotated[bool, typer.Option("--json", help="The figures as one JSON object.")] = False,
        config: options.Config = None,
        sets: options.Sets = None,
    ) -> None:
        """Fits a codebook to a deployment's own questions, and says how well it groups them.

        Set router.codebook to the file in every router, with router.strategy
        semantic_hash and the same router.hash_buckets.
        """

        async def work() -> int:
            settings = options.settings_of(config, sets)
            return _fit(settings, file, out, count or settings.router.hash_buckets, seed, as_json)

        run_command(work)

    app.add_typer(buckets, name="buckets")


async def _live(addresses: list[str], every: float, once: bool, everything: bool, as_json: bool) -> int:
    from rich.live import Live

    from kev.app.routing.buckets import rows
    from kev.app.top.figures import Figures
    from kev.app.top.scrape import read

    if not addresses:
        raise StartError("--metrics HOST:PORT: name the metrics endpoint of a router (metrics.port)")
    check_addresses(addresses)
    before = await read(addresses)
    if not before.values:
        raise StartError(f"no metrics at {', '.join(addresses)}: is metrics.port set there?")
    screen = console()
    with Live(console=screen, auto_refresh=False, transient=once) as live:
        while True:
            await asyncio.sleep(every)
            now = await read(addresses)
            figures = Figures(before, now)
            if as_json:
                sys.stdout.writelines(json.dumps(asdict(row)) + "\n" for row in rows(figures, idle=everything))
            elif once:
                screen.print(_table(figures, everything))
            if once:
                return FAILED if now.missing else 0
            live.update(_table(figures, everything), refresh=True)
            before = now


def _table(figures: Figures, everything: bool) -> Any:
    from rich.box import SIMPLE
    from rich.table import Table

    from kev.app.routing.buckets import max_over_mean, rows

    table = Table(title=f"Buckets, busiest {max_over_mean(figures):.1f} x the mean", box=SIMPLE)
    for title in ("bucket", "questions/s", "share", "at home", "home", "depth", "breaker"):
        table.add_column(title, justify="left" if title in ("bucket", "home", "breaker") else "right")
    for row in rows(figures, idle=everything):
        depth = "-" if row.depth is None else f"{row.depth:.0f}"
        cells = (f"{row.rate:.1f}", f"{row.share:.1%}", f"{row.at_home:.0%}", row.home or "-", depth, row.breaker)
        table.add_row(row.bucket, *cells)
    return table


def _fit(settings: Settings, file: str, out: Path, count: int, seed: int, as_json: bool) -> int:
    from kev.app.routing.fitting import fitted

    codebook, figures = fitted(file, count, settings.router.normalize, seed)
    try:
        codebook.save(out)
    except OSError as error:
        raise StartError(f"--out {out}: cannot be written ({error.strerror})") from None
    told = {name: asdict(grouping) for name, grouping in figures.items()}
    if as_json:
        sys.stdout.write(json.dumps({"codebook": str(out), "buckets": count, **told}) + "\n")
        return 0
    for name, grouping in figures.items():
        pairs = ""
        if grouping.same is not None and grouping.different is not None:
            pairs = f"; in one bucket: {grouping.same:.2f} of one intent, {grouping.different:.2f} of two"
        sizes = f"{grouping.used} of {count} buckets used, largest {grouping.max_over_mean:.1f} x the mean"
        sys.stdout.write(f"{name} ({grouping.questions} questions): {sizes}{pairs}\n")
    sys.stdout.write(f"{out}: router.codebook for router.hash_buckets {count} and strategy semantic_hash\n")
    return 0
