"""A request's records: manifest and outcomes."""

from __future__ import annotations

import asyncio
from unittest.mock import ANY

import pytest
from bus_labs import Lab
from bus_makers import manifest, new_rid, outcome

from kev.bus.port import Claim
from kev.domain.errors import NotFound
from kev.domain.outcome import Status


async def test_first_manifest_of_an_id_stays(bus):
    rid = new_rid()
    first = manifest(rid, digest="a")
    assert await bus.open_request(first) == Claim(first, True, ANY)
    assert await bus.open_request(manifest(rid, digest="b")) == Claim(first, False, 0)
    assert (await bus.request(rid)).manifest == first


async def test_routers_that_open_the_same_id_at_once_agree(lab: Lab):
    buses = [await lab.connect() for _ in range(3)]
    rid = new_rid()
    stored = await asyncio.gather(*(b.open_request(manifest(rid, digest=f"d{i}")) for i, b in enumerate(buses * 4)))
    assert len({one.manifest.digest for one in stored}) == 1
    assert [one.first for one in stored].count(True) == 1


async def test_an_unknown_request_is_none(bus):
    assert await bus.request(new_rid()) is None
    assert await bus.outcome(new_rid(), 0) is None


async def test_a_request_stands_from_its_manifest_to_its_drop(bus):
    rid = new_rid()
    assert not await bus.stands(rid)
    claim = await bus.open_request(manifest(rid))
    assert await bus.stands(rid)
    await bus.drop_request(rid, claim.number)
    assert not await bus.stands(rid)


async def test_the_record_holds_all_outcomes(bus):
    rid = new_rid()
    await bus.open_request(manifest(rid, slots=4))
    for slot in (2, 0):
        await bus.settle(outcome(rid, slot, f"answer {slot}"))
    record = await bus.request(rid)
    assert {slot: one.text for slot, one in record.outcomes.items()} == {0: "answer 0", 2: "answer 2"}
    assert record.open_slots() == (1, 3)


@pytest.mark.parametrize("count", [2, 8])
async def test_outcomes_that_are_asked_for_at_once_are_each_slots_own(bus, count: int):
    rid, other = new_rid(), new_rid()
    for one in (rid, other):
        await bus.open_request(manifest(one, slots=count))
    await bus.settle(outcome(rid, 1, "mine"))
    await bus.settle(outcome(other, 0, "another's"))
    found = await asyncio.gather(*(bus.outcome(rid, slot) for slot in range(count)))
    assert [one and one.text for one in found] == [None, "mine", *[None] * (count - 2)]
    await asyncio.gather(*(bus.settle(outcome(rid, slot, f"{slot}")) for slot in range(count)))
    found = await asyncio.gather(*(bus.outcome(rid, slot) for slot in range(count)))
    assert [one.text for one in found] == ["0", "mine", *(f"{slot}" for slot in range(2, count))]


async def test_a_record_of_a_thousand_outcomes_is_read_whole(bus):
    rid = new_rid()
    await bus.open_request(manifest(rid, slots=1000))
    await asyncio.gather(*(bus.settle(outcome(rid, slot, str(slot))) for slot in range(1000)))
    record = await bus.request(rid)
    assert {slot: one.text for slot, one in record.outcomes.items()} == {slot: str(slot) for slot in range(1000)}


async def test_the_first_outcome_wins_and_the_loser_learns_it(bus):
    rid = new_rid()
    await bus.open_request(manifest(rid))
    first = outcome(rid, 1, "first")
    assert await bus.settle(first) == first
    assert await bus.settle(outcome(rid, 1, "second", status=Status.FAILED)) == first
    assert await bus.outcome(rid, 1) == first


async def test_concurrent_writers_of_a_slot_agree_on_one_outcome(lab: Lab):
    buses = [await lab.connect() for _ in range(2)]
    rid = new_rid()
    await buses[0].open_request(manifest(rid, slots=20))
    writes = [b.settle(outcome(rid, slot, f"{slot} by {w}")) for slot in range(20) for w, b in enumerate(buses * 4)]
    stored = await asyncio.gather(*writes)
    record = await buses[0].request(rid)
    assert {(one.slot, one.text) for one in stored} == {(slot, one.text) for slot, one in record.outcomes.items()}
    assert len(record.outcomes) == 20


async def test_nothing_is_settled_without_a_manifest(bus):
    rid = new_rid()
    with pytest.raises(NotFound):
        await bus.settle(outcome(rid, 0))
    assert await bus.outcome(rid, 0) is None


async def test_a_dropped_request_is_gone_and_its_id_free(bus):
    rid = new_rid()
    claim = await bus.open_request(manifest(rid, digest="a"))
    await bus.settle(outcome(rid, 0, "old"))
    await bus.drop_request(rid, claim.number)
    assert await bus.request(rid) is None
    assert await bus.outcome(rid, 0) is None
    with pytest.raises(NotFound):
        await bus.settle(outcome(rid, 0, "late"))
    again = manifest(rid, digest="b")
    assert await bus.open_request(again) == Claim(again, True, ANY)
    assert (await bus.request(rid)).outcomes == {}


async def test_dropping_an_unknown_request_does_nothing(bus):
    other = new_rid()
    claim = await bus.open_request(manifest(other))
    await bus.drop_request(new_rid(), 1_000_000)
    await bus.drop_request(other, claim.number + 1_000_000)
    await bus.drop_request(other, 0)
    assert await bus.request(other) is not None


async def test_a_request_stands_until_every_claim_is_dropped(lab: Lab):
    one, two = await lab.connect(), await lab.connect()
    rid = new_rid()
    first = await one.open_request(manifest(rid))
    second = await two.open_request(manifest(rid, created_ms=5))
    assert second == Claim(first.manifest, False, ANY)
    assert second.number not in (0, first.number)
    await one.settle(outcome(rid, 0, "written between"))
    third = await one.open_request(manifest(rid))
    await one.drop_request(rid, first.number)
    await one.drop_request(rid, first.number)
    for bus in (one, two):
        record = await bus.request(rid)
        assert (record.manifest, [*record.outcomes]) == (first.manifest, [0])
    assert (await two.settle(outcome(rid, 1, "still"))).text == "still"
    await one.drop_request(rid, third.number)
    assert (await two.request(rid)).open_slots() == (2, 3)
    await two.drop_request(rid, second.number)
    assert await one.request(rid) is None
    assert await one.outcome(rid, 1) is None
    assert (await one.open_request(manifest(rid))).first


async def test_routers_that_open_and_drop_at_once_leave_what_one_of_them_keeps(lab: Lab):
    """Who has a claim can settle, whatever the others give up meanwhile; in the end nothing is left."""
    buses = [await lab.connect() for _ in range(3)]

    async def work(bus, rid, number):
        claim = await bus.open_request(manifest(rid, slots=6))
        if number % 2:
            stored = await bus.settle(outcome(rid, number, str(number)))
            assert stored.text == str(number)
            assert (await bus.request(rid)).outcomes[number].text == str(number)
        await bus.drop_request(rid, claim.number)

    for rid in [new_rid() for _ in range(5)]:
        await asyncio.gather(*(work(bus, rid, number) for number, bus in enumerate(buses * 2)))
        assert await buses[0].request(rid) is None
        assert [await buses[0].outcome(rid, slot) for slot in range(6)] == [None] * 6


async def test_a_later_claim_does_not_make_a_requests_life_longer(lab: Lab):
    """Its first outcomes are gone by then: what is left would look as if it had never ended."""
    bus = await lab.connect(result_ttl_s=2.0, dedupe_window_s=1.0)
    rid = new_rid()
    await bus.open_request(manifest(rid))
    await bus.settle(outcome(rid, 0, "early"))
    await lab.pass_time(1.2)
    await bus.open_request(manifest(rid))
    assert (await bus.request(rid)).outcomes[0].text == "early"
    await lab.pass_time(1.2)
    assert await bus.request(rid) is None
    fresh = manifest(rid, digest="b")
    assert await bus.open_request(fresh) == Claim(fresh, True, ANY)
    assert (await bus.request(rid)).outcomes == {}


async def test_an_id_used_again_after_its_ttl_starts_without_old_outcomes(lab: Lab):
    bus = await lab.connect(result_ttl_s=1.5, dedupe_window_s=1.0)
    rid = new_rid()
    await bus.open_request(manifest(rid, digest="a"))
    await lab.pass_time(1.0)
    await bus.settle(outcome(rid, 0, "old"))
    await lab.pass_time(1.0)
    assert await bus.request(rid) is None
    fresh = manifest(rid, digest="b")
    assert await bus.open_request(fresh) == Claim(fresh, True, ANY)
    assert (await bus.request(rid)).outcomes == {}
    assert (await bus.settle(outcome(rid, 0, "new"))).text == "new"


async def test_text_survives_the_wire(bus):
    rid = new_rid()
    await bus.open_request(manifest(rid))
    text = "那个人 👩‍👩‍👧 \x00 \r\n نمی‌خواهم"
    await bus.settle(outcome(rid, 0, text))
    assert (await bus.outcome(rid, 0)).text == text
