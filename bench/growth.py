"""How a forward grows: with live channels, with the length of their contexts, and with a long prompt beside them.

    python -m bench.growth [--precision int8] [--plot growth.png] [--out growth.json]

Three parts, on the bare core and on the worker's core thread:

1. one decoding forward by live channels, each with a short context;
2. one decoding forward of eight channels by the length of their contexts;
3. eight channels that decode while a prompt of 4,000 tokens comes in: how long
   each waits for its next token, against the longest forward (one chunk), and
   the longest stall of the event loop in the same process.

Each step stands beside max(bytes / bandwidth, operations / peak), which counts
weights (as they are stored; ``ratio_wide``: as the precision has them in general),
KV and attention, and is measured in the same run. About a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.common import reported
from bench.common_plot import plot
from bench.core.floor import forward_floor
from bench.core.quiet import Quiet
from inference_svc.assembly import core_of
from inference_svc.backends.native import NativeBackend
from inference_svc.backends.native.roofs import measure_roofs
from inference_svc.channels import Job as Seat
from inference_svc.clock import Clock
from inference_svc.report import Order, Report
from inference_svc.rows import Pack, Span, pages_for
from kev.config.load import load_settings
from kev.domain.question import Sampling
from kev.tokens.model_files import default_model_path
from kev.tokens.tokenizer import Tokenizer
from kev.wire.process import keep_start

CHANNELS = (1, 2, 4, 8, 16, 24, 32, 48, 64)
CONTEXTS = (64, 256, 512, 1024, 2048, 4096)
SHORT, SEATED, LONG_PROMPT, LONGEST = 128, 8, 4_000, 8_192
ANSWER = 400
TICK_S = 0.001


def main() -> None:
    """Reads the command line, measures, prints JSON and two plots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16", "int8"))
    parser.add_argument("--rounds", type=int, default=7, help="forwards of each size, in turns; the median is shown")
    parser.add_argument("--rows", type=int, default=256, help="row budget: the size of a chunk")
    parser.add_argument("--patience", type=float, default=0.2, help="seconds to wait for idle neighbours before a step")
    parser.add_argument("--plot", type=Path, default=None, help="a picture, where matplotlib is installed")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    model = default_model_path()
    pages = max(max(CHANNELS) * pages_for(SHORT + 1), SEATED * pages_for(max(CONTEXTS) + 1))
    backend = NativeBackend.load(model, precision=args.precision, pages=pages)
    keep_start()  # as every service does: a sweep over all that was imported would be a stall of its own
    backend.fill(range(pages), 0.01)  # pages that nobody wrote share one page of memory, and cost no reading
    quiet = Quiet(backend.threads, args.patience)
    by_channels = _steps(backend, [(count, SHORT) for count in CHANNELS], args.rounds, quiet)
    by_context = _steps(backend, [(SEATED, context) for context in CONTEXTS], args.rounds, quiet)
    beside = asyncio.run(_beside_a_long_prompt(backend, Tokenizer.load(model), args.rows))
    backend.close()
    reported({"precision": args.precision, "by_channels": by_channels, "by_context": by_context, **beside}, args.out)
    print(_drawn("channels", by_channels, args.plot), _drawn("context", by_context, args.plot), sep="\n")


@dataclass(frozen=True, slots=True)
class _Step:
    """One forward: seconds, those of its floors (see ``bench.core.floor``), and the rate of instructions beside it."""

    took: float
    floor: float
    wide: float
    rate: float


def _steps(backend: NativeBackend, sizes: Sequence[tuple[int, int]], rounds: int, quiet: Quiet) -> list[dict[str, Any]]:
    """One row per (channels, context): the step and its floor, milliseconds."""
    packs = [_pack(count, context) for count, context in sizes]
    steps: list[list[_Step]] = [[] for _ in sizes]
    for _ in range(rounds + 1):  # the first turn warms up
        # In every turn: a machine that is shared is not equally fast all the time.
        roofs = measure_roofs(backend.precision, backend.threads)
        for pack, found in zip(packs, steps, strict=True):
            rate = quiet.wait()
            began = time.perf_counter()
            backend.forward(pack)
            took = time.perf_counter() - began
            floor, wide = (forward_floor(backend, roofs, pack, wide) for wide in (False, True))
            found.append(_Step(took, floor, wide, min(rate, quiet.rate())))
    return [_row(count, context, some[1:], quiet) for (count, context), some in zip(sizes, steps, strict=True)]


def _row(count: int, context: int, steps: Sequence[_Step], quiet: Quiet) -> dict[str, Any]:
    calm = [step.took / step.floor for step in steps if quiet.held(step.rate)]
    return {
        "channels": count,
        "context": context,
        "step_ms": round(1e3 * median(step.took for step in steps), 2),
        "floor_ms": round(1e3 * median(step.floor for step in steps), 2),
        "ratio": round(median(step.took / step.floor for step in steps), 2),
        "ratio_wide": round(median(step.took / step.wide for step in steps), 2),
        "ratio_quiet": round(median(calm), 2) if calm else None,
        "quiet_steps": len(calm),
    }


def _pack(count: int, context: int) -> Pack:
    """One more token for each of ``count`` channels that hold ``context`` positions. All hold the same values."""
    each = pages_for(context + 1)
    tables = [np.arange(n * each, (n + 1) * each, dtype=np.int32) for n in range(count)]
    return Pack.of([Span(n, np.array([100 + n], np.int32), context, table) for n, table in enumerate(tables)])


class _Decoding:
    """Eight channels that decode on a core thread, and how long each waited for its tokens."""

    def __init__(self, backend: NativeBackend, tokenizer: Tokenizer, rows: int) -> None:
        flags = {"core.max_context": str(LONGEST), "core.row_budget": str(rows)}
        settings = load_settings(None, flags=flags, environment={})
        self._loop = asyncio.get_running_loop()
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self.core = core_of(settings, backend, tokenizer, Clock(), self._receive)
        self.core.start()

    def _receive(self, report: Report) -> None:
        self._loop.call_soon_threadsafe(self._reports.put_nowait, report)

    def join(self, ticket: int, prompt: Sequence[int], answer: int) -> None:
        """Seats one."""
        seat = Seat(ticket, "bench", np.asarray(prompt, np.int32), answer)
        self.core.join(Order(ticket, seat, Sampling(temperature=1.0), ticket, float("inf")))

    async def reports(self, until: Callable[[Report], bool]) -> list[tuple[float, Report]]:
        """All reports with their times, up to the one that ``until`` knows."""
        found: list[tuple[float, Report]] = []
        while True:
            report = await self._reports.get()
            found.append((time.perf_counter(), report))
            if until(report):
                return found


async def _beside_a_long_prompt(backend: NativeBackend, tokenizer: Tokenizer, rows: int) -> dict[str, Any]:
    decoding = _Decoding(backend, tokenizer, rows)
    stalls = _Stalls()
    watching = asyncio.create_task(stalls.watch())
    prompt = tokenizer.encode_text("Tell me all that you know about the sea. " * 4)
    for ticket in range(SEATED):
        decoding.join(ticket, prompt, ANSWER)
    calm = await decoding.reports(lambda report: report.forward >= 20)
    long_one = (prompt * (LONG_PROMPT // len(prompt) + 1))[:LONG_PROMPT]
    decoding.join(SEATED, long_one, 1)
    busy = await decoding.reports(lambda report: any(end.ticket == SEATED for end in report.ends))
    watching.cancel()
    await asyncio.to_thread(decoding.core.stop)
    chunks = [report.seconds for _, report in busy if report.prefill_rows]
    gaps = [after[0] - before[0] for before, after in itertools.pairwise(busy)]
    return {
        "long_prompt": {
            "calm_forward_ms": round(1e3 * median(report.seconds for _, report in calm[-10:]), 1),
            "chunk_forward_ms": round(1e3 * median(chunks), 1),
            "longest_chunk_ms": round(1e3 * max(chunks), 1),
            "longest_wait_ms": round(1e3 * max(gaps), 1),
            "longest_event_loop_stall_ms": round(1e3 * stalls.longest, 1),
        }
    }


class _Stalls:
    """Notes the longest time by which a tick of the event loop came late, seconds."""

    longest = 0.0

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(TICK_S)
            self.longest = max(self.longest, time.perf_counter() - before - TICK_S)


def _drawn(x: str, rows: list[dict[str, Any]], picture: Path | None) -> str:
    lines = {name: [(row[x], row[f"{name}_ms"]) for row in rows] for name in ("step", "floor")}
    file = picture.with_name(f"{picture.stem}-{x}{picture.suffix}") if picture else None
    return plot(f"one decoding forward by {x}", x, "ms", lines, file)


if __name__ == "__main__":
    main()
