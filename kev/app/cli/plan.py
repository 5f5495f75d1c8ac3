"""``kev plan``: a worker's memory, before it is started."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kev.app.cli import options
from kev.app.cli.running import FAILED, run_check
from kev.config.load import ConfigError
from kev.config.settings import Settings

if TYPE_CHECKING:
    from inference_svc.models import ModelConfig
    from inference_svc.planning.plan import Plan, Wish


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    def plan(
        model: Annotated[str | None, typer.Option("--model", help="core.model_path; its weights are not read.")] = None,
        channels: Annotated[
            int | None, typer.Option("--channels", min=1, max=1024, help="router.channel_pool_size.")
        ] = None,
        context: Annotated[
            int | None, typer.Option("--context", min=16, help="core.max_context: positions of one channel.")
        ] = None,
        prefix: Annotated[int, typer.Option("--prefix", min=0, help="Leading tokens that all channels share.")] = 0,
        precision: Annotated[str | None, typer.Option("--precision", help="fp32, bf16 or int8.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object, in bytes, on standard output.")] = False,
        config: options.Config = None,
        sets: options.Sets = None,
    ) -> None:
        """Works out what a worker takes, and how many channels this machine carries.

        Exit code 1 if it does not fit, 2 for a bad option or model.
        """
        given = {
            "core.model_path": model,
            "router.channel_pool_size": channels,
            "core.max_context": context,
            "core.precision": precision,
        }

        def work() -> int:
            return _plan(options.settings_of(config, sets, given), prefix, as_json)

        run_check(work, _cannot)


def _cannot() -> tuple[type[Exception], ...]:
    from inference_svc.backends.native.errors import NativeUnavailable

    return ValueError, NativeUnavailable


def _plan(settings: Settings, prefix: int, as_json: bool) -> int:
    from inference_svc.models import has_codes, inspect
    from inference_svc.planning.machine import memory_limit
    from inference_svc.planning.plan import plan
    from kev.tokens.model_files import resolve_model

    path = resolve_model(settings.core.model_path)
    config, _ = inspect(path)
    variant, wish = _variant(settings), _wish(settings, config, prefix)
    wish = replace(wish, coded=variant is not None and has_codes(path, wish.precision))
    found = plan(config, wish, variant, memory_limit(), _bytes_of(path))
    facts = {"model": path.name, "family": config.family, **asdict(wish)}
    if as_json:
        sys.stdout.write(json.dumps({**facts, **asdict(found)}, indent=1) + "\n")
    else:
        _print(facts, found, wish)
    return 0 if found.fits else FAILED


def _wish(settings: Settings, config: ModelConfig, prefix: int) -> Wish:
    from inference_svc.planning.plan import Wish
    from kev.config.settings import KvLayout

    core, context = settings.core, settings.core.max_context
    config.check_context(context)
    if prefix >= context:
        raise ConfigError(f"--prefix: must be less than the context of {context} positions, got {prefix}")
    return Wish(
        channels=settings.router.channel_pool_size,
        context=context,
        prefix=prefix,
        precision=core.precision.value,
        rows=core.row_budget,
        parallel=settings.router.max_parallel_queries,
        threads=core.threads or len(os.sched_getaffinity(0)),
        unified=settings.isolation.kv_cache is KvLayout.UNIFIED,
        copies=settings.isolation.kv_cache is not KvLayout.SHARED_READONLY,
        pages=core.kv_pages,
        device=core.device.partition(":")[0],
    )


def _variant(settings: Settings) -> Any:
    """The kernels that would be used; None where the reference backend would be."""
    from inference_svc.backends.native.errors import NativeUnavailable
    from inference_svc.backends.native.variants import choose

    core = settings.core
    if core.precision.value == "fp16":
        raise ConfigError("core.precision: 'fp16' is not built yet; allowed: fp32, bf16, int8")
    if core.backend != "reference" and core.device == "cpu" and core.tensor_parallel == 1:
        try:
            return choose()
        except NativeUnavailable:
            if core.backend == "native":
                raise
    if core.precision.value == "int8":
        raise ConfigError("core.precision: 'int8' is not built for the reference backend; allowed: fp32, bf16")
    return None


def _bytes_of(path: Path) -> int:
    files = path.glob("*.safetensors") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def _print(facts: dict[str, Any], found: Plan, wish: Wish) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    shared = f", {wish.prefix} of them shared" if wish.prefix else ""
    table = Table(
        title=escape(f"{facts['model']} ({facts['family']}, {found.parameters / 1e6:.0f} M) in {wish.precision}, "
        f"{found.backend} backend: {wish.channels} channels of {wish.context} positions{shared}"),
        box=SIMPLE,
    )  # fmt: skip
    for title, side in (("", "left"), ("MiB", "right"), ("", "left")):
        table.add_column(title, justify="right" if side == "right" else "left")
    for name, size, note in _rows(found, wish):
        table.add_row(name, _mib(size), note)
    console.print(table)
    share = f"{_mib(found.program + found.peak)} of {_mib(found.memory)} MiB"
    verdict = f"fits: {share}" if found.fits else f"does NOT fit: {share}, a tenth of which is spared"
    console.print(verdict, highlight=False)
    console.print(
        f"At their fullest {found.most_channels} channels fit. Recommended: router.channel_pool_size "
        f"{found.channel_pool_size}, router.max_parallel_queries {found.max_parallel_queries}.",
        highlight=False,
        soft_wrap=True,
    )


def _rows(found: Plan, wish: Wish) -> list[tuple[str, int, str]]:
    if wish.unified:
        layout = "unified: each channel reserves its context"
    else:
        layout = f"{'split' if wish.copies else 'shared_readonly'}: pages as needed"
    return [
        ("weights", found.weights, "as the backend holds them; native workers of one machine share them"),
        ("KV of one channel", found.kv_channel, f"at its fullest; {found.kv_position} bytes a position"),
        ("  without grouped heads", found.kv_channel_without_grouping, "2 x layers x hidden x context x bytes"),
        ("KV of all channels", found.kv_all_full, "at their fullest, and the shared prefix"),
        ("KV store", found.kv_store, f"{found.kv_pages} pages of 16 positions, {layout}"),
        ("activations", found.activations, f"a forward of {max(wish.rows, wish.parallel)} rows, and its logits"),
        ("peak", found.peak, "weights + KV store + activations"),
        ("program", found.program, "the process without a model"),
        ("while loading, at most", found.loading_peak, "the first start, when weights are packed" if
         found.backend == "native" else "each start"),
    ]  # fmt: skip


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f}"
