"""A worker over the memory bus with the fake model, and a router's part of the work."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "unit" / "inference"))
from inference_fakes import EOS, VOCAB, FakeBackend, FakeTokenizer, letters, naive_tokens

from inference_svc.worker import Worker
from kev.bus.memory import MemoryBus
from kev.bus.messages import Lane, Manifest, QueuedQuestion, SlotPlan
from kev.bus.settings import BusSettings
from kev.config.load import load_settings
from kev.domain.outcome import Outcome
from kev.domain.question import Isolation, ResultMode, Sampling

__all__ = ["EOS", "VOCAB", "FakeBackend", "FakeTokenizer", "letters", "naive_tokens"]
FAST = {"bus.lease_ms": 400, "bus.ack_wait_ms": 400, "router.channel_pool_size": 4, "core.max_context": 128}


def bus_for(settings: Any) -> MemoryBus:
    """A memory bus with the times of the settings."""
    return MemoryBus(BusSettings(ack_wait_s=settings.bus.ack_wait_ms / 1000, lease_s=settings.bus.lease_ms / 1000))


def settings_with(**changes: Any) -> Any:
    """Short times, few channels; ``bus__lease_ms=1`` changes ``bus.lease_ms``."""
    return load_settings(flags=FAST | {key.replace("__", "."): value for key, value in changes.items()}, environment={})


def question(slot: int, tokens: Sequence[int], **changes: Any) -> QueuedQuestion:
    """A question as the router would queue it."""
    now = time.time_ns() // 1_000_000
    values: dict[str, Any] = {
        "rid": "r1",
        "request_id": "req-1",
        "tenant": "",
        "slot": slot,
        "prompt": np.array(tokens, "<i4").tobytes(),
        "prefix_tokens": 0,
        "max_tokens": 8,
        "sampling": Sampling(),
        "seed": slot,
        "deadline_ms": now + 20_000,
        "accepted_ms": now,
        "isolation": Isolation.STRICT,
        "max_parallel": 32,
        "lane": Lane("w1", slot % 4),
        "bucket": 3,
        "branch": "home",
        "tokenizer_digest": FakeTokenizer.digest,
        "id": f"q{slot}",
    }
    return QueuedQuestion(**(values | changes))


async def submit(bus: MemoryBus, questions: Sequence[QueuedQuestion]) -> None:
    """Manifest first, then the questions."""
    for rid in {item.rid for item in questions}:
        plans = tuple(SlotPlan(item.slot, item.deadline_ms) for item in questions if item.rid == rid)
        await bus.open_request(
            Manifest(rid, "req-1", "", "digest", 0, 2000, Isolation.STRICT, ResultMode.SLOT_MAP, plans)
        )
    assert not await bus.enqueue(questions)


async def outcomes(bus: MemoryBus, rid: str = "r1") -> dict[int, Outcome]:
    """Waits until every slot of the request has its outcome."""
    while True:
        record = await bus.request(rid)
        assert record is not None
        if not record.open_slots():
            return record.outcomes
        await asyncio.sleep(0.005)


async def nothing_queued(bus: MemoryBus) -> None:
    """Waits until every question is acknowledged."""
    while await bus.depths():  # noqa: ASYNC110 - the bus has no event for it
        await asyncio.sleep(0.005)


@asynccontextmanager
async def worker(bus: MemoryBus, backend: Any = None, tokenizer: Any = None, **options: Any) -> AsyncIterator[Worker]:
    """A running worker."""
    settings = options.pop("settings", None) or settings_with()
    made = Worker(
        bus,
        settings,
        backend or FakeBackend(),
        tokenizer or FakeTokenizer(),
        **({"worker_id": "w1", "self_test": None} | options),
    )
    await made.start()
    running = asyncio.ensure_future(made.run())
    try:
        yield made
    finally:
        await made.close()
        await asyncio.gather(running, return_exceptions=True)
