"""What each layer costs: the same questions to the bare core, the Engine, three tiers over NATS, and HTTP.

    python -m bench.tiers [--questions 16] [--rounds 5] [--workload FILE] [--precision bf16] [--out tiers.json]

All layers are up at once and take turns, so that the machine's mood hits all
alike. Answers have a fixed number of tokens. First tokens and throughput are
what the client sees. ``core`` computes the packs of a serving core with all
questions at hand, and takes the likeliest tokens; ``worker core`` has scheduler,
sampler and detokeniser, but no bus. About 3 minutes on two quiet cores;
where others use the machine, processor time per token says more than the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

import httpx

from bench.common import Run, alternated, load_work, reported, summary
from bench.common_layers import (
    BareCore,
    WorkerCore,
    asked_over_http,
    engine,
    http_door,
    loaded,
    settings_for,
    three_tiers,
)
from bench.common_unending import ignore_end_of_sequence
from bench.core.quiet import Quiet

LAYERS = ("core", "worker core", "engine", "nats", "http")


def main() -> None:
    """Reads the command line, measures, prints JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=0, help="new tokens of each answer; the workload's by default")
    parser.add_argument("--layers", default=",".join(LAYERS), help="which, with commas between")
    parser.add_argument("--workload", type=Path, default=None, help="workload_w.json, or JSON lines with text")
    parser.add_argument("--precision", default="", help="the deployment's default if it is not given")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--patience", type=float, default=10, help="seconds to wait for idle neighbours, before a run")
    parser.add_argument("--out", type=Path, default=None)
    asyncio.run(_main(parser.parse_args()))


async def _main(args: argparse.Namespace) -> None:
    work = load_work(args.workload).first(args.questions)
    if args.tokens:
        work = type(work)(work.system, work.questions, args.tokens)
    flags = dict(text.split("=", 1) for text in args.set)
    if args.precision:
        flags["core.precision"] = args.precision
    ignore_end_of_sequence()
    settings = settings_for(work, flags)
    layers: dict[str, Callable[[], Awaitable[Run]]] = {}
    wanted = [name.strip() for name in args.layers.split(",")]
    async with AsyncExitStack() as stack:
        model = loaded(settings)
        stack.callback(model.backend.close)
        if "core" in wanted:
            layers["core"] = BareCore(model, work)
        if "worker core" in wanted:
            own = loaded(settings)
            stack.callback(own.backend.close)
            core = WorkerCore(settings, own, work)
            stack.callback(core.close)
            layers["worker core"] = core
        if "engine" in wanted:
            layers["engine"] = await stack.enter_async_context(engine(settings, work))
        if "nats" in wanted:
            layers["nats"] = await stack.enter_async_context(three_tiers(settings, work, flags))
        if "http" in wanted:
            url = await stack.enter_async_context(http_door(work, flags))
            client = await stack.enter_async_context(httpx.AsyncClient(timeout=None))
            layers["http"] = lambda: asked_over_http(client, url, work)
        await alternated(layers, 1)  # warm: prefixes stored, connections open
        quiet = Quiet(len(os.sched_getaffinity(0)), args.patience)
        found = await alternated(layers, args.rounds, quiet)
    rows = {name: _row(runs, found[next(iter(found))], quiet) for name, runs in found.items()}
    facts = {"questions": len(work.questions), "tokens": work.tokens, "variant": model.backend.variant}
    reported({**facts, "rounds": args.rounds, "layers": rows}, args.out)


def _row(runs: list[Run], base: list[Run], quiet: Quiet) -> dict[str, object]:
    """A layer's figures, and what it costs against the first layer: turn by turn, and best against best."""
    pairs = list(zip(runs, base, strict=True))
    calm = [(run, one) for run, one in pairs if quiet.held(min(run.rate_beside, one.rate_beside))]
    best, base_best = (max(run.rate for run in some) for some in (runs, base))
    first, base_first = (min(median(run.first) for run in some) for some in (runs, base))
    cpu, base_cpu = (min(run.cpu / run.tokens for run in some) for some in (runs, base))
    return {
        **summary(runs),
        "costs_percent": _costs(pairs),
        "costs_percent_best": _percent(1 - best / base_best),
        "costs_percent_quiet": _costs(calm) if calm else None,
        "quiet_turns": len(calm),
        "first_token_later_ms": _later_ms(pairs),
        "first_token_later_ms_quiet": _later_ms(calm) if calm else None,
        "first_token_later_ms_best": round(1e3 * (first - base_first), 1),
        "cpu_percent_more": _percent(median((run.cpu / run.tokens) / (one.cpu / one.tokens) for run, one in pairs) - 1),
        "cpu_percent_more_best": _percent(cpu / base_cpu - 1),
        "answers_equal_to_first_layer": sum(a == b for a, b in zip(runs[0].texts, base[0].texts, strict=True)),
    }


def _costs(pairs: list[tuple[Run, Run]]) -> float:
    return _percent(1 - median(run.rate / one.rate for run, one in pairs))


def _later_ms(pairs: list[tuple[Run, Run]]) -> float:
    return round(1e3 * median(median(run.first) - median(one.first) for run, one in pairs), 1)


def _percent(part: float) -> float:
    return round(100 * part, 1)


if __name__ == "__main__":
    main()
