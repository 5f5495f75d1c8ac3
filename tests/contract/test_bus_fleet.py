"""Leases, strikes, dead letters, the end."""

from __future__ import annotations

import asyncio

import pytest
from bus_labs import SHORT, Lab, eventually
from bus_makers import lease, manifest, new_rid, question
from bus_takes import take_one

from kev.bus.messages import Lane
from kev.domain.errors import BusUnavailable, InvalidArgument

LEASE = SHORT["lease_s"]


async def seen(bus, *worker_ids: str):
    """Waits until the fleet is exactly this."""
    return await eventually(bus.fleet, lambda fleet: set(fleet) == set(worker_ids))


async def test_the_fleet_is_empty_at_first(bus):
    assert await bus.fleet() == {}


async def test_a_worker_that_beats_is_in_the_fleet(lab: Lab):
    worker, router = await lab.connect(lease_s=30.0), await lab.connect(lease_s=30.0)
    assert await router.fleet() == {}
    sent = lease("w", levels=("strict", "shared"), address="127.0.0.1:7000", beat=3)
    await worker.announce(sent)
    assert (await seen(router, "w"))["w"] == sent


async def test_a_router_that_starts_later_knows_the_fleet_at_once(lab: Lab):
    worker = await lab.connect(lease_s=30.0)
    await worker.announce(lease("a"))
    await worker.announce(lease("b"))
    router = await lab.connect(lease_s=30.0)
    assert set(await router.fleet()) == {"a", "b"}


async def test_the_last_beat_counts(lab: Lab):
    worker, router = await lab.connect(lease_s=30.0), await lab.connect(lease_s=30.0)
    await router.fleet()
    await worker.announce(lease("w", free=4, beat=1))
    await worker.announce(lease("w", free=0, beat=2, state="draining"))
    fleet = await eventually(router.fleet, lambda fleet: "w" in fleet and fleet["w"].beat == 2)
    found = fleet["w"]
    assert (found.free, found.state) == (0, "draining")


async def test_a_worker_that_stops_beating_leaves_after_its_lease(lab: Lab):
    bus = await lab.connect()
    await bus.announce(lease("dead"))
    await bus.announce(lease("alive"))
    await seen(bus, "dead", "alive")
    for _ in range(4):
        await lab.pass_time(LEASE * 0.4)
        await bus.announce(lease("alive"))
    await seen(bus, "alive")


async def test_a_dead_worker_is_not_born_again_for_a_late_watcher(lab: Lab):
    worker = await lab.connect()
    await worker.announce(lease("dead"))
    await lab.pass_time(LEASE * 1.5)
    router = await lab.connect()
    assert await router.fleet() == {}


async def test_a_worker_that_withdraws_is_gone_at_once(lab: Lab):
    worker, router = await lab.connect(lease_s=30.0), await lab.connect(lease_s=30.0)
    await worker.announce(lease("w"))
    await seen(router, "w")
    await worker.withdraw("w")
    await seen(router)
    late = await lab.connect(lease_s=30.0)
    assert await late.fleet() == {}


@pytest.mark.parametrize("leave", ["drain", "withdraw"])
async def test_a_worker_that_leaves_rings_for_the_others_and_is_seen_to_have_left_by_then(lab: Lab, leave: str):
    worker, other = await lab.connect(lease_s=30.0), await lab.connect(lease_s=30.0)
    rung = asyncio.Event()
    subscription = await other.on_bell("other", lambda _: rung.set())
    await worker.announce(lease("w"))
    await seen(other, "w")
    assert not rung.is_set()
    await (worker.withdraw("w") if leave == "withdraw" else worker.announce(lease("w", state="draining")))
    async with asyncio.timeout(10):
        await rung.wait()
    assert [one.state for one in (await other.fleet()).values()] == ([] if leave == "withdraw" else ["draining"])
    await subscription.close()


async def test_withdrawing_keeps_the_queue(bus):
    await bus.announce(lease("w"))
    await bus.enqueue([question(new_rid(), 0, Lane("w", 0))])
    await bus.withdraw("w")
    assert await bus.depths() == {Lane("w", 0): 1}
    await take_one(bus, "w")


async def test_withdrawing_a_stranger_does_nothing(bus):
    await bus.withdraw("stranger")
    assert await bus.fleet() == {}


@pytest.mark.parametrize("worker_id", ["express", "a.b", "", "A"])
async def test_a_worker_id_that_cannot_be_is_an_error(bus, worker_id):
    with pytest.raises(InvalidArgument):
        await bus.announce(lease(worker_id))


async def test_strikes_are_counted_per_question_and_across_workers(lab: Lab):
    one, two = await lab.connect(), await lab.connect()
    rid = new_rid()
    assert [await one.strike(rid, 0), await two.strike(rid, 0), await one.strike(rid, 1)] == [1, 2, 1]
    assert await one.strike(new_rid(), 0) == 1
    assert sorted(await asyncio.gather(*(b.strike(rid, 7) for b in [one, two] * 5))) == list(range(1, 11))


async def test_a_strike_is_taken_off_before_or_after_it_came(lab: Lab):
    one, two = await lab.connect(), await lab.connect()
    rid = new_rid()
    await one.excuse(rid, 0)
    assert await two.strike(rid, 0) == 0
    assert await two.strike(rid, 0) == 1
    await one.excuse(rid, 0)
    assert await one.strike(rid, 0) == 1
    assert await one.strike(rid, 1) == 1


async def test_a_dead_letter_is_kept_with_its_reason(lab: Lab):
    worker, operator = await lab.connect(), await lab.connect()
    killer = question(new_rid(), 3, Lane("w", 0))
    await worker.dead_letter(killer, "killed three workers", 3)
    (letter,) = await operator.dead_letters()
    assert (letter.question, letter.reason, letter.strikes) == (killer, "killed three workers", 3)
    assert letter.at_ms > 0


async def test_a_question_is_one_dead_letter_however_often_it_is_reported(bus):
    killer = question(new_rid(), 3, Lane("w", 0))
    for strikes in (3, 4):
        await bus.dead_letter(killer, "killed its workers", strikes)
    assert len(await bus.dead_letters()) == 1


async def test_a_closed_bus_says_so(bus):
    rid = new_rid()
    await bus.close()
    await bus.close()
    for call in (
        bus.open_request(manifest(rid)),
        bus.enqueue([question(rid, 0, Lane("w", 0))]),
        take_one(bus, "w"),
        bus.depths(),
        bus.request(rid),
        bus.outcome(rid, 0),
        bus.fleet(),
        bus.announce(lease("w")),
        bus.strike(rid, 0),
    ):
        with pytest.raises(BusUnavailable):
            await call


async def test_closing_ends_followers(bus):
    async with asyncio.timeout(10), bus.follow(new_rid()) as feed:
        await bus.close()
        assert await anext(feed, None) is None
