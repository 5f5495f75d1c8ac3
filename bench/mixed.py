"""Real questions that arrive by chance (Poisson) at rising rates: throughput against the time that people wait.

    python -m bench.mixed [--seconds 20] [--rates 1,2,4] [--precision bf16] [--out mixed.json] [--plot mixed.png]

Without ``--rates`` a short closed run first finds what the machine can answer,
and the rates are shares of that: 0.2 to 1.2. Questions come from the files
given with ``--data``, mixed by chance with a fixed seed; answers end where the
model ends them. Runs over the Engine in this process, or with ``--router``
over a running cluster. 7 rates of 20 s and their tails: about 4 minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.common import DATA, EXAMPLES, percentile, reported, texts_of
from bench.common_plot import plot
from kev.app.engine import Engine
from kev.client import AsyncClient
from kev.config.load import load_settings
from kev.domain.question import Question
from kev.domain.result import SlotResult

SHARES = (0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.2)
CLOSED = 48
SEED = 7
Ask = Callable[[Question], AsyncIterator[Any]]


@dataclass(frozen=True, slots=True)
class Told:
    """One question's fate, seconds from its arrival."""

    first: float
    whole: float
    tokens: int
    ok: bool


def main() -> None:
    """Reads the command line, measures, prints JSON and a plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long questions arrive, per rate")
    parser.add_argument("--rates", default="", help="questions a second, with commas between")
    parser.add_argument("--tokens", type=int, default=64, help="most new tokens of an answer")
    parser.add_argument("--data", type=Path, action="append", default=[], help="JSON lines with text; repeatable")
    parser.add_argument("--router", default="", metavar="HOST:PORT")
    parser.add_argument("--precision", default="")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--plot", type=Path, default=None, help="a picture, where matplotlib is installed")
    asyncio.run(_main(parser.parse_args()))


async def _main(args: argparse.Namespace) -> None:
    stream = Questions(args.data or _default_data(), args.tokens)
    async with AsyncExitStack() as stack:
        ask = await stack.enter_async_context(_opened(args))
        await _closed(ask, stream, 4)
        capacity = await _closed(ask, stream, CLOSED)
        rates = [float(rate) for rate in args.rates.split(",") if rate] or [share * capacity for share in SHARES]
        rows = [await _at_rate(ask, stream, rate, args.seconds) for rate in rates]
    reported({"closed_questions_per_second": round(capacity, 2), "rates": rows}, args.out)
    print(_plotted(rows, args.plot))


class Questions:
    """A stream of questions, the same every time."""

    def __init__(self, files: Sequence[Path], tokens: int) -> None:
        self._sets = [texts_of(file) for file in files]
        self._random = random.Random(SEED)
        self._tokens = tokens

    def next(self) -> Question:
        """One of any of the files; each file is as likely as the others."""
        text = self._random.choice(self._random.choice(self._sets))
        return Question(text=text, max_tokens=self._tokens, timeout_ms=600_000)

    def pause(self, rate: float) -> float:
        """Seconds until the next one arrives."""
        return self._random.expovariate(rate)


def _default_data() -> list[Path]:
    return sorted(DATA.glob("*.jsonl")) or [EXAMPLES]


@asynccontextmanager
async def _opened(args: argparse.Namespace) -> AsyncIterator[Ask]:
    if args.router:
        async with AsyncClient(args.router) as client:
            yield lambda question: client.ask(question)
        return
    flags = dict(text.split("=", 1) for text in args.set)
    if args.precision:
        flags["core.precision"] = args.precision
    engine = await asyncio.to_thread(Engine, load_settings(None, flags=flags, environment={}))
    try:
        yield lambda question: engine.aio.ask(question)
    finally:
        await asyncio.to_thread(engine.close)


async def _asked(ask: Ask, question: Question) -> Told:
    began, first = time.perf_counter(), 0.0
    end: SlotResult | None = None
    async for frame in ask(question):
        if frame.text and not first:
            first = time.perf_counter() - began
        end = frame.result or end
    assert end is not None
    whole = time.perf_counter() - began
    return Told(first or whole, whole, end.tokens, end.ok)


async def _closed(ask: Ask, stream: Questions, count: int) -> float:
    """Questions answered per second when ``count`` are there at once."""
    began = time.perf_counter()
    await asyncio.gather(*(_asked(ask, stream.next()) for _ in range(count)))
    return count / (time.perf_counter() - began)


async def _at_rate(ask: Ask, stream: Questions, rate: float, seconds: float) -> dict[str, float]:
    """Lets questions arrive for some seconds and waits for all of them."""
    tasks: list[asyncio.Task[Told]] = []
    began = due = time.perf_counter()
    while (due := due + stream.pause(rate)) < began + seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(_asked(ask, stream.next())))
    told = await asyncio.gather(*tasks)
    return _row(rate, told, time.perf_counter() - began)


def _row(rate: float, told: Sequence[Told], seconds: float) -> dict[str, float]:
    if not told:
        return {"offered_per_second": round(rate, 3), "asked": 0}
    firsts, wholes = [one.first for one in told], [one.whole for one in told]
    return {
        "offered_per_second": round(rate, 3),
        "asked": len(told),
        "answered": sum(one.ok for one in told),
        "answered_per_second": round(len(told) / seconds, 3),
        "tokens_per_second": round(sum(one.tokens for one in told) / seconds, 1),
        "first_token_p50_ms": round(1e3 * percentile(firsts, 0.5), 1),
        "first_token_p95_ms": round(1e3 * percentile(firsts, 0.95), 1),
        "answer_p50_ms": round(1e3 * percentile(wholes, 0.5), 1),
        "answer_p95_ms": round(1e3 * percentile(wholes, 0.95), 1),
    }


def _plotted(rows: Sequence[dict[str, float]], file: Path | None) -> str:
    names = ("first_token_p50_ms", "first_token_p95_ms", "answer_p50_ms", "answer_p95_ms")
    labels = ("first token p50", "First token p95", "answer p50", "Answer p95")
    lines = {
        label: [(row["tokens_per_second"], row[name]) for row in rows if row["asked"]]
        for name, label in zip(names, labels, strict=True)
    }
    return plot("Poisson arrivals", "tokens per second", "ms", lines, file)


if __name__ == "__main__":
    main()
