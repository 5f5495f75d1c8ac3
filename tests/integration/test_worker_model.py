"""The worker with the real model: in company and alone, the same words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worker_lab import bus_for, outcomes, question, settings_with, submit, worker

from inference_svc.backends.load import load_backend
from inference_svc.backends.port import Backend
from kev.bus.messages import CancelHint, Lane
from kev.domain.outcome import FinishReason, Outcome, Status
from kev.domain.question import Sampling
from kev.tokens.tokenizer import Tokenizer

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]
TEXTS = [
    "The capital of France is",
    "Once upon a time there was",
    "1 2 3 4",
    "水是",
    "def add(a, b):",
    "Dear Sir or Madam,",
]


@pytest.fixture(scope="module")
def backend(default_model: Path) -> Iterator[Backend]:
    loaded = load_backend(default_model, pages=64)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def tokenizer(default_model: Path) -> Tokenizer:
    return Tokenizer.load(default_model)


def _ask(tokenizer: Tokenizer, slot: int, text: str, **changes: Any) -> Any:
    sampling = Sampling(temperature=0.8, top_p=0.9) if slot % 2 else Sampling()
    values = {"max_tokens": 6, "sampling": sampling, "tokenizer_digest": tokenizer.digest, "deadline_ms": 1 << 52}
    return question(slot, tokenizer.encode_text(text), **(values | changes))


async def test_packed_and_one_at_a_time_give_the_same_text(backend: Backend, tokenizer: Tokenizer) -> None:
    settings = settings_with(bus__ack_wait_ms=60_000)
    bus = bus_for(settings)
    async with worker(bus, backend, tokenizer, settings=settings):
        await submit(bus, [_ask(tokenizer, n, text) for n, text in enumerate(TEXTS)])
        packed = await outcomes(bus)
        await submit(bus, [_ask(tokenizer, n, text, rid="r2", max_parallel=1) for n, text in enumerate(TEXTS)])
        single = await outcomes(bus, "r2")
    assert {outcome.status for outcome in packed.values()} == {Status.ANSWERED}
    for slot, outcome in packed.items():
        assert outcome.text == single[slot].text
        assert outcome.audit.completion_tokens == single[slot].audit.completion_tokens


async def test_a_cancel_frees_the_channel_and_the_next_answer_is_right(backend: Backend, tokenizer: Tokenizer) -> None:
    settings = settings_with(bus__ack_wait_ms=60_000, router__channel_pool_size=1)
    bus = bus_for(settings)
    async with worker(bus, backend, tokenizer, settings=settings) as running, bus.follow("r1") as feed:
        await submit(bus, [_ask(tokenizer, 0, TEXTS[0], max_tokens=100, lane=Lane("w1", 0))])
        await anext(aiter(feed))
        await bus.settle(Outcome("req-1", "r1", 0, Status.CANCELLED, FinishReason.CANCELLED))
        await bus.hint_cancel(CancelHint("r1", (0,)))
        await submit(bus, [_ask(tokenizer, 0, TEXTS[0], rid="r2", lane=Lane("w1", 0))])
        after = (await outcomes(bus, "r2"))[0]
        await submit(bus, [_ask(tokenizer, 0, TEXTS[0], rid="r3", lane=Lane("w1", 0))])
        alone = (await outcomes(bus, "r3"))[0]
        assert running.free <= 1
    assert after.text == alone.text
    assert after.audit.channel == alone.audit.channel == "w1/0"


async def test_a_shared_prefix_changes_no_answer(backend: Backend, tokenizer: Tokenizer) -> None:
    found = []
    for share in (True, False):
        settings = settings_with(bus__ack_wait_ms=60_000, isolation__shared_prefix=share)
        bus = bus_for(settings)
        prefix = tokenizer.encode_text("You are a helpful assistant who answers briefly and with great care, always. ")
        asked = [
            _ask(tokenizer, n, text, prefix_tokens=len(prefix), prompt=_bytes([*prefix, 28, *range(300, 303 + n)]))
            for n, text in enumerate(TEXTS[:3])
        ]
        async with worker(bus, backend, tokenizer, settings=settings):
            await submit(bus, asked)
            found.append({slot: outcome.text for slot, outcome in (await outcomes(bus)).items()})
    assert found[0] == found[1]


def _bytes(tokens: list[int]) -> bytes:
    return np.array(tokens, "<i4").tobytes()


async def test_the_event_loop_lives_during_forwards(backend: Backend, tokenizer: Tokenizer) -> None:
    settings = settings_with(bus__ack_wait_ms=60_000)
    bus = bus_for(settings)
    turns = 0
    async with worker(bus, backend, tokenizer, settings=settings) as running:
        await submit(bus, [_ask(tokenizer, 0, TEXTS[1])])
        asking = asyncio.ensure_future(outcomes(bus))
        while not asking.done():
            turns += running.core.busy_since is not None
            await asyncio.sleep(0)
        await asking
    assert turns > 20
