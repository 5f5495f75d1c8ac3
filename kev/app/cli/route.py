"""``kev route``: where questions would go, and what the model would read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from os.path import isfile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kev.app.batchfile.read import STDIN, read_questions
from kev.app.cli import options
from kev.app.cli.plain import console, plain
from kev.app.cli.running import FAILED, run_command
from kev.app.cli.top import check_addresses
from kev.bus.messages import Lane
from kev.config.settings import Settings
from kev.domain.question import Question
from kev.wire.process import StartError

if TYPE_CHECKING:
    from router_svc.dry_run import Routed

_FILES = (".json", ".jsonl", ".ndjson", ".txt")
_SHOWN = 60


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    def route(
        asked: Annotated[
            str, typer.Argument(metavar="FILE_OR_TEXT", help="A file as for kev run, one question, or - for stdin.")
        ],
        strategy: Annotated[
            str | None, typer.Option("--strategy", help="Instead of router.strategy, e.g. semantic_hash.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="JSON lines on standard output.")] = False,
        metrics: Annotated[
            list[str] | None,
            typer.Option("--metrics", metavar="HOST:PORT", help="Metrics endpoint of a router: take its channels."),
        ] = None,
        workers: Annotated[
            int, typer.Option("--workers", min=1, max=1000, help="Else: so many workers' channels.")
        ] = 1,
        config: options.Config = None,
        sets: options.Sets = None,
    ) -> None:
        """Dry run: for each question the text that the model reads, the text that is hashed, tokens, bucket, home.

        Nothing is asked. Exit code 1 if a question would be refused.
        """
        flags = [f"router.strategy={strategy}"] if strategy is not None else []

        async def work() -> int:
            settings = options.settings_of(config, [*(sets or ()), *flags])
            lanes = await _lanes(settings, metrics or (), workers)
            routed = _routed(settings, lanes, _questions(asked))
            show = _print_json if as_json else _print_table
            show(settings, routed)
            return FAILED if any(one.reason for one in routed) else 0

        run_command(work)


def _questions(asked: str) -> list[Question]:
    """A file where there is one, or a name that looks like one; else the text itself."""
    looks = asked.lower().endswith(_FILES) and " " not in asked
    return read_questions(asked) if asked == STDIN or looks or isfile(asked) else [Question(text=asked)]


async def _lanes(settings: Settings, metrics: Sequence[str], workers: int) -> list[Lane]:
    from kev.app.routing.lanes import configured_lanes, running_lanes
    from kev.app.top.scrape import read

    if not metrics:
        return configured_lanes(settings, workers)
    check_addresses(metrics)
    lanes = running_lanes(await read(metrics), settings)
    if not lanes:
        raise StartError(f"--metrics {', '.join(metrics)}: no router answers there, or it sees no channel")
    return lanes


def _routed(settings: Settings, lanes: Iterable[Lane], questions: Sequence[Question]) -> list[Routed]:
    from kev.tokens.model_files import resolve_model
    from kev.tokens.tokenizer import Tokenizer
    from router_svc.dry_run import DryRun

    dry = DryRun(settings, Tokenizer.load(resolve_model(settings.core.model_path)), lanes)
    try:
        return [dry.route(question) for question in questions]
    finally:
        dry.close()


def _print_json(settings: Settings, routed: Sequence[Routed]) -> None:
    import msgspec

    for number, one in enumerate(routed):
        told: dict[str, Any] = {"question": number, "strategy": settings.router.strategy.value}
        sys.stdout.write(json.dumps({**told, **msgspec.structs.asdict(one)}, ensure_ascii=False) + "\n")


def _print_table(settings: Settings, routed: Sequence[Routed]) -> None:
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{settings.router.strategy.value}, {settings.router.hash_buckets} buckets", box=SIMPLE)
    for title in ("", "prompt text", "routing text", "tokens", "bucket", "home", "saved"):
        table.add_column(title, justify="right" if title in ("", "tokens", "bucket", "saved") else "left")
    for number, one in enumerate(routed):
        refused = f"refused, {one.reason}: {one.detail}" if one.reason else ""
        cells = (
            str(number),
            refused or _short(one.prompt_text),
            _short(one.routing_text),
            str(one.tokens),
            str(one.bucket) if one.bucket >= 0 else "-",
            one.home or "-",
            str(one.saved),
        )
        table.add_row(*(Text(cell, style="red" if refused else "") for cell in cells))
    console().print(table)


def _short(text: str) -> str:
    line = " ".join(plain(text).split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
