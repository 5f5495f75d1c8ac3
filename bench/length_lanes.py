"""What a long question costs the short ones beside it: with long channels, and without.

    python -m bench.length_lanes [--seconds 15] [--rounds 3] [--set core.precision=bf16] [--out lanes.json]

Askers keep a number of short questions under way. In turns they have the
worker for themselves, and share it with one question of 2,000 tokens that is
asked again as soon as it has ended. Once with ``length_aware`` and two long
channels, once with ``round_robin`` and none; the two take turns, and each is
compared with itself alone in the same round. The wait is the time from a short
question's acceptance to its first forward. With the defaults about 4 minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.common import EXAMPLES, percentile, reported
from kev.app.engine import Engine
from kev.config.load import load_settings
from kev.domain.question import Question
from kev.domain.result import SlotResult
from kev.tokens.model_files import resolve_model
from kev.tokens.tokenizer import Tokenizer

COMMON = {
    "router.channel_pool_size": "18",
    "router.long_tokens": "512",
    "router.max_text_chars": "100000",
    "core.max_context": "2560",
    "core.kv_pages": "1024",
}
KINDS = {
    "length_aware": {"router.strategy": "length_aware", "router.long_channels": "2"},
    "round_robin": {"router.strategy": "round_robin"},
}
LONG_ANSWER = 32


@dataclass(slots=True)
class Part:
    """What was seen in one stretch of time. Times in milliseconds, of the short questions."""

    waits: list[float] = field(default_factory=list)
    wholes: list[float] = field(default_factory=list)
    longs: list[SlotResult] = field(default_factory=list)

    def told(self, seconds: float) -> dict[str, Any]:
        """The figures."""
        figures: dict[str, Any] = {
            "short_answered": len(self.waits),
            "short_per_second": round(len(self.waits) / seconds, 2),
            "wait_p50_ms": round(percentile(self.waits, 0.5), 2),
            "wait_p95_ms": round(percentile(self.waits, 0.95), 2),
            "answer_p95_ms": round(percentile(self.wholes, 0.95), 1),
        }
        if self.longs:
            figures["long_prompt_tokens"] = self.longs[0].audit.prompt_tokens
            figures["long_seconds"] = [round(result.audit.elapsed_ms / 1000, 2) for result in self.longs]
            figures["long_ended"] = [result.status for result in self.longs]
        return figures


def main() -> None:
    """Reads the command line, measures, prints JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each stretch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--askers", type=int, default=24, help="short questions under way at any time")
    parser.add_argument("--tokens", type=int, default=16, help="of a short answer")
    parser.add_argument("--long", type=int, default=2_000, help="tokens of the long question")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--out", type=Path, default=None)
    asyncio.run(_main(parser.parse_args()))


async def _main(args: argparse.Namespace) -> None:
    more = dict(text.split("=", 1) for text in args.set)
    long_text = _long_text(args.long, more.get("core.model_path", "default"))
    rounds: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    async with AsyncExitStack() as stack:
        engines: dict[str, Engine] = {}
        for kind, flags in KINDS.items():
            settings = load_settings(None, flags={**COMMON, **flags, **more}, environment={})
            engines[kind] = await asyncio.to_thread(Engine, settings)
            stack.push_async_callback(asyncio.to_thread, engines[kind].close)
            await _stretch(engines[kind], args, "", min(2.0, args.seconds))
        for _ in range(args.rounds):
            for kind, engine in engines.items():
                rounds[kind].append(await _round(engine, args, long_text))
    reported({"askers": args.askers, "short_tokens": args.tokens, **_summary(rounds), "rounds": rounds}, args.out)


async def _round(engine: Engine, args: argparse.Namespace, long_text: str) -> dict[str, Any]:
    """The short questions alone, then beside the long one."""
    alone = (await _stretch(engine, args, "", args.seconds)).told(args.seconds)
    beside = (await _stretch(engine, args, long_text, args.seconds)).told(args.seconds)
    ratio = beside["wait_p95_ms"] / max(alone["wait_p95_ms"], 0.01)
    return {"alone": alone, "beside_long": beside, "wait_p95_ratio": round(ratio, 3)}


def _summary(rounds: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    return {
        f"wait_p95_ratio_{kind}": round(median(one["wait_p95_ratio"] for one in told), 3)
        for kind, told in rounds.items()
    }


async def _stretch(engine: Engine, args: argparse.Namespace, long_text: str, seconds: float) -> Part:
    """Askers for some seconds, beside a long question unless its text is empty.

    What ends later counts too; the long question is cancelled then.
    """
    part, until = Part(), time.perf_counter() + seconds
    texts = itertools.cycle(_texts())
    long = asyncio.create_task(_ask_long(engine, long_text, part)) if long_text else None
    if long is not None:
        await asyncio.sleep(min(0.5, seconds / 4))
    await asyncio.gather(*(_ask_short(engine, texts, args.tokens, until, part) for _ in range(args.askers)))
    if long is not None:
        long.cancel()
        await asyncio.gather(long, return_exceptions=True)
    return part


async def _ask_short(engine: Engine, texts: Any, tokens: int, until: float, part: Part) -> None:
    while time.perf_counter() < until:
        result = await _answer(engine, Question(text=next(texts), max_tokens=tokens, timeout_ms=120_000))
        part.waits.append(result.audit.queued_ms)
        part.wholes.append(result.audit.queued_ms + result.audit.elapsed_ms)


async def _ask_long(engine: Engine, text: str, part: Part) -> None:
    while True:
        part.longs.append(await _answer(engine, Question(text=text, max_tokens=LONG_ANSWER, timeout_ms=600_000)))


async def _answer(engine: Engine, question: Question) -> SlotResult:
    result: SlotResult | None = None
    async for frame in engine.aio.ask([question]):
        result = frame.result or result
    assert result is not None
    return result


def _texts() -> list[str]:
    items = [json.loads(line) for line in EXAMPLES.read_text().splitlines() if line.strip()]
    return [item["text"] for item in items if "text" in item]


def _long_text(tokens: int, model: str) -> str:
    """A text of about so many tokens."""
    tokenizer = Tokenizer.load(resolve_model(model))
    ids: Sequence[int] = tokenizer.encode_text(" ".join(_texts()) + " ", at_start=False)
    return tokenizer.decode(list(itertools.islice(itertools.cycle(ids), tokens)))


if __name__ == "__main__":
    main()
