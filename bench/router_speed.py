"""How many questions a second one router prepares and places, by strategy, and how long its event loop stalls.

Everything is the real router over the memory bus: cleaning, chat template, tokens, budget, bucket, channel, manifest,
queue. The broker's own cost is not in it. "A core" is CPU time of the whole process.

    python bench/router_speed.py questions.jsonl [--batch 32] [--seconds 5]

The file holds JSON lines with ``text``. Prints one JSON line per strategy and normalisation level.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from kev.bus.memory import MemoryBus
from kev.bus.messages import WorkerLease
from kev.bus.settings import BusSettings
from kev.config.load import load_settings
from kev.domain.question import Batch, Question
from kev.tokens.model_files import resolve_model
from kev.tokens.tokenizer import Tokenizer
from router_svc.router import Router

BOUND = 1_000_000
SYSTEM = "You are a helpful assistant. Answer briefly."


async def started(tokenizer: Tokenizer, strategy: str, level: str) -> Router:
    """A router that sees one worker with 32 channels."""
    bus = MemoryBus(BusSettings(queue_bound=BOUND, shared_lane_bound=BOUND, lease_s=3600))
    await bus.announce(WorkerLease("w1", 32, 32, "ready", "model", tokenizer.digest, 1 << 20))
    flags = {
        "bus.queue_bound": BOUND,
        "router.strategy": strategy,
        "router.normalize": level,
        "core.system_prompt": SYSTEM,
    }
    router = Router(bus, load_settings(None, flags=flags, environment={}), tokenizer)
    await router.start()
    return router


@asynccontextmanager
async def warm(tokenizer: Tokenizer, strategy: str, level: str, texts: Sequence[str]) -> AsyncIterator[Router]:
    """A router of its own for each measurement: the queues of the last one, which nobody empties, are gone."""
    gc.collect()
    router = await started(tokenizer, strategy, level)
    await speed(router, texts, 32, 0.5)
    yield router
    await router.close()


async def speed(router: Router, texts: Sequence[str], size: int, seconds: float) -> dict[str, float]:
    """Submits batches one after the other for some seconds."""
    stream = cycle(texts)
    count, began, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        questions = tuple(Question(text=text) for text in islice(stream, size))
        await router.submit(Batch(questions=questions))
        count += size
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"per_second": round(count / wall), "per_second_and_core": round(count / cpu)}


async def stall(router: Router, texts: Sequence[str]) -> float:
    """Longest stall of the event loop, milliseconds, while a batch of 256 long texts goes in."""
    words = " ".join(texts)
    long = (words * (1 + 256 * 40 // max(1, len(words))))[:6000]
    batch = Batch(questions=tuple(Question(text=f"{number}: {long}", truncate=True) for number in range(256)))
    worst = 0.0

    async def tick() -> None:
        nonlocal worst
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            worst = max(worst, time.perf_counter() - before - 0.001)

    ticking = asyncio.create_task(tick())
    await router.submit(batch)
    ticking.cancel()
    return 1000 * worst


async def run(options: argparse.Namespace) -> None:
    """All combinations."""
    lines = Path(options.file).read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines if line.strip()]
    tokenizer = Tokenizer.load(resolve_model(options.model))
    for strategy in ("round_robin", "consistent_hash", "semantic_hash"):
        for level in ("off", "light", "full"):
            result: dict[str, Any] = {}
            async with warm(tokenizer, strategy, level, texts) as router:
                result |= await speed(router, texts, options.batch, options.seconds)
            async with warm(tokenizer, strategy, level, texts) as router:
                result["stall_ms"] = round(await stall(router, texts), 1)
            print(json.dumps({"strategy": strategy, "normalize": level, **result}), flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measures the router.")
    parser.add_argument("file")
    parser.add_argument("--model", default="default")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5.0)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
