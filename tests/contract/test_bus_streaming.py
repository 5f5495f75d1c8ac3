"""Following a request: deltas, outcome hints, catch-up."""

from __future__ import annotations

import asyncio

from bus_labs import Lab
from bus_makers import manifest, new_rid, outcome

from kev.bus.messages import Delta, Piece
from kev.domain.outcome import Outcome


def delta(rid: str, text: str, slot: int = 0, offset: int = 0) -> Delta:
    return Delta(rid, "w", (Piece(slot, 1, "w/0", offset, text),))


async def read(feed, count: int) -> list[Delta | Outcome]:
    async with asyncio.timeout(10):
        return [await anext(feed) for _ in range(count)]


async def test_deltas_arrive_in_order(lab: Lab):
    worker, reader = await lab.connect(), await lab.connect()
    rid = new_rid()
    sent = [delta(rid, text) for text in "abc"]
    async with reader.follow(rid) as feed:
        for one in sent:
            await worker.publish_delta(one)
        assert await read(feed, 3) == sent


async def test_an_outcome_is_announced_to_followers_once(lab: Lab):
    worker, reader = await lab.connect(), await lab.connect()
    rid = new_rid()
    await worker.open_request(manifest(rid))
    async with reader.follow(rid) as feed:
        stored = await worker.settle(outcome(rid, 2, "done"))
        assert await read(feed, 1) == [stored]


async def test_every_follower_gets_everything_and_only_its_request(lab: Lab):
    bus, other = await lab.connect(), await lab.connect()
    rid, stranger = new_rid(), new_rid()
    async with bus.follow(rid) as one, other.follow(rid) as two, bus.follow(stranger) as three:
        await bus.publish_delta(delta(rid, "a"))
        await bus.publish_delta(delta(stranger, "b"))
        assert await read(one, 1) == await read(two, 1) == [delta(rid, "a")]
        assert await read(three, 1) == [delta(stranger, "b")]


async def test_nobody_need_listen(bus):
    await bus.publish_delta(delta(new_rid(), "a"))


async def test_a_follower_that_does_not_read_loses_messages_but_harms_nobody(lab: Lab):
    bus = await lab.connect(follow_buffer=10)
    rid = new_rid()
    await bus.open_request(manifest(rid))
    async with bus.follow(rid) as lazy, bus.follow(rid) as eager:
        for number in range(40):
            await bus.publish_delta(delta(rid, str(number)))
            assert (await read(eager, 1))[0].pieces[0].text == str(number)
        assert [one.pieces[0].text for one in await read(lazy, 10)] == [str(number) for number in range(10)]
        assert bus.stats.follow_dropped == 30
        await bus.publish_delta(delta(rid, "again"))
        assert await read(lazy, 1) == [delta(rid, "again")]


async def test_the_iterator_ends_with_its_context(bus):
    rid = new_rid()
    async with bus.follow(rid) as feed:
        waiting = asyncio.create_task(anext(feed, None))
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        assert await waiting is None
        assert await anext(feed, None) is None


async def test_catch_up_gathers_the_running_slots_of_all_workers(lab: Lab):
    one, two, reader = await lab.connect(), await lab.connect(), await lab.connect()
    rid = new_rid()
    await one.open_request(manifest(rid, slots=3))
    mine = {rid: [Piece(2, 1, "a/0", 0, "two")]}
    await one.on_catch_up(lambda asked: mine.get(asked, []))
    await two.on_catch_up(lambda asked: [Piece(0, 1, "b/0", 0, "zero")] if asked == rid else [])
    assert await reader.catch_up(rid) == (Piece(0, 1, "b/0", 0, "zero"), Piece(2, 1, "a/0", 0, "two"))


async def test_catch_up_keeps_the_latest_attempt(lab: Lab):
    one, two = await lab.connect(), await lab.connect()
    rid = new_rid()
    await one.open_request(manifest(rid, slots=2))
    await one.on_catch_up(lambda _: [Piece(0, 2, "a/0", 0, "new")])
    await two.on_catch_up(lambda _: [Piece(0, 1, "b/0", 0, "stale")])
    assert await one.catch_up(rid) == (Piece(0, 2, "a/0", 0, "new"),)


async def test_catch_up_without_workers_is_empty(bus):
    assert await bus.catch_up(new_rid()) == ()


async def test_catch_up_survives_a_worker_that_fails(lab: Lab):
    one, two = await lab.connect(), await lab.connect()
    rid = new_rid()
    await one.open_request(manifest(rid, slots=1))

    def broken(_: str) -> list[Piece]:
        raise RuntimeError("no text")

    await one.on_catch_up(broken)
    await two.on_catch_up(lambda _: [Piece(0, 1, "b/0", 0, "text")])
    assert await two.catch_up(rid) == (Piece(0, 1, "b/0", 0, "text"),)


async def test_a_closed_catch_up_answers_no_more(bus):
    rid = new_rid()
    await bus.open_request(manifest(rid, slots=1))
    subscription = await bus.on_catch_up(lambda _: [Piece(0, 1, "b/0", 0, "text")])
    await subscription.close()
    assert await bus.catch_up(rid) == ()
