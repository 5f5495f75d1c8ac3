"""Many writers at once over real connections."""

from __future__ import annotations

import asyncio

from nats_support import connect

from bus_makers import manifest, new_rid, outcome, question, questions  # isort: skip
from bus_takes import drain  # isort: skip
from kev.bus.messages import OVERFLOW, Lane
from kev.bus.nats import NatsBus
from kev.bus.nats.server import LocalNats


async def test_two_hundred_slots_and_four_writers_each_have_one_winner(server: LocalNats):
    one, two = await connect(server, namespace="settle"), await connect(server, namespace="settle")
    rid = new_rid()
    await one.open_request(manifest(rid, slots=200))
    writes = [
        bus.settle(outcome(rid, slot, f"{slot} by {name}"))
        for slot in range(200)
        for name, bus in (("a", one), ("b", two), ("c", one), ("d", two))
    ]
    told = await asyncio.gather(*writes)
    record = await two.request(rid)
    assert len(record.outcomes) == 200
    assert all(record.outcomes[stored.slot] == stored for stored in told)
    await one.close()
    await two.close()


async def test_two_routers_that_submit_the_same_batch_put_it_in_once(server: LocalNats):
    routers = [await connect(server, namespace="twice", queue_bound=100) for _ in range(2)]
    for _ in range(10):
        rid = new_rid()
        batch = [question(rid, slot, Lane("w", slot % 4)) for slot in range(30)]
        assert await asyncio.gather(*(router.enqueue(batch) for router in routers)) == [frozenset(), frozenset()]
        assert sorted(question.slot for question in await drain(routers[0], "w")) == list(range(30))
    for router in routers:
        await router.close()


async def test_workers_that_take_several_while_more_come_in_lose_none(server: LocalNats):
    router, *workers = [await connect(server, namespace="several", queue_bound=500, ack_wait_s=60.0) for _ in range(3)]
    rids = [new_rid() for _ in range(60)]
    attempts: dict[tuple[str, int], int] = {}

    async def put_in() -> None:
        for number, rid in enumerate(rids):
            await router.enqueue(questions(rid, 1 + number % 7, Lane("w", 0)))

    async def serve(bus: NatsBus, most: int) -> None:
        while len(attempts) < sum(1 + number % 7 for number in range(len(rids))):
            for taken in await bus.take("w", most):
                attempts[taken.question.rid, taken.question.slot] = taken.attempt
                await taken.ack()

    async with asyncio.timeout(30):
        await asyncio.gather(put_in(), serve(workers[0], 3), serve(workers[1], 16))
    assert set(attempts.values()) == {1}
    assert await router.depths() == {}
    for bus in (router, *workers):
        await bus.close()


async def test_more_batches_at_once_than_the_broker_keeps_open(server: LocalNats):
    bus = await connect(server, namespace="many", queue_bound=1000)
    batches = [questions(new_rid(), 4, Lane(f"w{number % 8}", number % 3)) for number in range(120)]
    assert await asyncio.gather(*(bus.enqueue(batch) for batch in batches)) == [frozenset()] * 120
    assert sum((await bus.depths()).values()) == 480
    await bus.close()


async def test_a_lane_that_many_fill_at_once_stays_within_its_bound(server: LocalNats):
    buses = [await connect(server, namespace="fill", queue_bound=8, shared_lane_bound=16) for _ in range(2)]
    sets = [questions(new_rid(), 3, OVERFLOW) for _ in range(20)]
    refused = await asyncio.gather(*(buses[n % 2].enqueue(one) for n, one in enumerate(sets)))
    assert set(refused) == {frozenset(), frozenset({OVERFLOW})}
    assert await buses[0].depths() == {OVERFLOW: 3 * refused.count(frozenset())}
    assert refused.count(frozenset()) == 5
    for bus in buses:
        await bus.close()
