"""Long questions and the others: neither waits for the other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from router_lab import batch_of, lease, many, taken_from, until

from kev.bus.memory import MemoryBus
from kev.bus.messages import Lane
from kev.bus.settings import BusSettings
from kev.domain.errors import Overloaded
from kev.domain.question import Priority, Strategy
from kev.tokens.tokenizer import Tokenizer
from router_svc.assign import NO_BUCKET, Assigner
from router_svc.lanes import Lanes
from router_svc.router import Router

Start = Callable[..., Any]
LONG_TEXT = "word " * 100
FLAGS: dict[str, Any] = {
    "router__strategy": "length_aware",
    "router__long_channels": 1,
    "router__long_tokens": 80,
    "router__channel_pool_size": 2,
}
SHORT, LONG = Lane("w1", 0), Lane("w1", 1, long=True)


@pytest.fixture
async def bus(tokenizer: Tokenizer) -> MemoryBus:
    memory = MemoryBus(BusSettings(queue_bound=3, shared_lane_bound=3, lease_s=3600))
    await memory.announce(lease(tokenizer, channels=2, long_channels=1))
    return memory


def _lanes(split: bool = True) -> Lanes:
    def make(long: bool) -> Assigner:
        rng = random.Random(1)
        return Assigner(load_factor=1.25, queue_bound=3, shared_bound=3, virtual_nodes=8, rng=rng, long=long)

    lanes = Lanes(make, split=split)
    lanes.set_members([SHORT, LONG], shared_lanes=True)
    return lanes


def test_each_kind_has_its_channels_its_shared_lanes_and_its_bound() -> None:
    lanes = _lanes()
    for _ in range(3):
        placement = lanes.assign(NO_BUCKET, Priority.NORMAL, long=True)
        assert placement is not None
        assert placement.lane == LONG
        assert placement.why.startswith("long lane: ")
    assert lanes.assign(NO_BUCKET, Priority.NORMAL, long=True) is None
    assert lanes.missing(1, 2) == 2
    express = lanes.assign(NO_BUCKET, Priority.EXPRESS, long=True)
    assert express is not None
    assert express.lane == Lane("express", long=True)
    short = lanes.assign(NO_BUCKET, Priority.NORMAL)
    assert short is not None
    assert short.lane == SHORT
    lanes.loads.undo([LONG, SHORT])
    assert (lanes.loads.of(LONG), lanes.loads.of(SHORT), lanes.loads.total) == (2, 0, 2)


def test_without_long_channels_long_questions_go_where_all_go() -> None:
    lanes = _lanes(split=False)
    placement = lanes.assign(NO_BUCKET, Priority.NORMAL, long=True)
    assert placement is not None
    assert placement.lane == SHORT
    assert "no worker has long channels" in placement.why


async def test_a_question_that_reaches_the_boundary_waits_in_the_long_lane(bus: MemoryBus, start: Start) -> None:
    router = await start(bus, **FLAGS)
    await router.submit(batch_of("Why?", LONG_TEXT, "How?"))
    assert {question.slot: question.lane for question in await taken_from(bus, "w1")} == {0: SHORT, 2: SHORT}
    assert {question.slot: question.lane for question in await taken_from(bus, "w1.long")} == {1: LONG}


async def test_a_batch_of_any_strategy_keeps_to_the_lanes(bus: MemoryBus, start: Start) -> None:
    router = await start(bus, **FLAGS)
    batch = msgspec.structs.replace(batch_of("Why?", LONG_TEXT), strategy=Strategy.CONSISTENT_HASH)
    await router.submit(batch)
    assert [(question.slot, question.bucket >= 0) for question in await taken_from(bus, "w1.long")] == [(1, True)]


async def test_what_the_deployment_shares_does_not_make_a_question_long(bus: MemoryBus, start: Start) -> None:
    router = await start(bus, core__system_prompt=LONG_TEXT, **FLAGS)
    await router.submit(batch_of("Why?"))
    assert await taken_from(bus, "w1.long") == []


async def test_short_questions_do_not_wait_behind_long_ones_for_room(bus: MemoryBus, start: Start) -> None:
    async with asyncio.timeout(30):
        router: Router = await start(bus, **FLAGS)
        await router.submit(batch_of(*[LONG_TEXT] * 3))
        held = asyncio.create_task(router.submit(batch_of(LONG_TEXT, request_id="held")))
        await until(lambda: router.waiters == 1)
        await router.submit(many(3, "short"))
        assert not held.done()
        mixed = asyncio.create_task(router.submit(batch_of(LONG_TEXT, "Why?", request_id="mixed")))
        await until(lambda: router.waiters == 2)
        assert len(await taken_from(bus, "w1")) == 3
        for task in (held, mixed):
            task.cancel()
        await asyncio.gather(held, mixed, return_exceptions=True)


async def test_a_full_long_lane_refuses_long_questions_only(bus: MemoryBus, start: Start) -> None:
    router = await start(bus, router__overflow_policy="reject", **FLAGS)
    await router.submit(batch_of(*[LONG_TEXT] * 3))
    with pytest.raises(Overloaded):
        await router.submit(batch_of(LONG_TEXT, request_id="r2"))
    await router.submit(many(3, "short"))


async def test_background_and_overflow_have_long_lanes_too(bus: MemoryBus, start: Start) -> None:
    router = await start(bus, router__overflow_policy="queue", **FLAGS)
    await router.submit(batch_of(LONG_TEXT, priority=Priority.BACKGROUND))
    await router.submit(batch_of(*[LONG_TEXT] * 4, request_id="r2"))
    lanes = {str(lane): depth for lane, depth in (await bus.depths()).items()}
    assert lanes == {"background.long": 1, "w1/1": 3, "overflow.long": 1}
