"""A request's records: manifest and outcomes."""

from __future__ import annotations

import asyncio

import pytest
from bus_labs import Lab
from bus_makers import manifest, new_rid, outcome

from kev.domain.errors import NotFound
from kev.domain.outcome import Status


async def test_first_manifest_of_an_id_stays(bus):
    rid = new_rid()
    first = manifest(rid, digest="a")
    assert await bus.open_request(first) == first
    assert await bus.open_request(manifest(rid, digest="b")) == first
    assert (await bus.request(rid)).manifest == first


async def test_routers_that_open_the_same_id_at_once_agree(lab: Lab):
    buses = [await lab.connect() for _ in range(3)]
    rid = new_rid()
    stored = await asyncio.gather(*(b.open_request(manifest(rid, digest=f"d{i}")) for i, b in enumerate(buses * 4)))
    assert len({one.digest for one in stored}) == 1


async def test_an_unknown_request_is_none(bus):
    assert await bus.request(new_rid()) is None
    assert await bus.outcome(new_rid(), 0) is None


async def test_the_record_holds_all_outcomes(bus):
    rid = new_rid()
    await bus.open_request(manifest(rid, slots=4))
    for slot in (2, 0):
        await bus.settle(outcome(rid, slot, f"answer {slot}"))
    record = await bus.request(rid)
    assert {slot: one.text for slot, one in record.outcomes.items()} == {0: "answer 0", 2: "answer 2"}
    assert record.open_slots() == (1, 3)


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
    await bus.open_request(manifest(rid, digest="a"))
    await bus.settle(outcome(rid, 0, "old"))
    await bus.drop_request(rid)
    assert await bus.request(rid) is None
    assert await bus.outcome(rid, 0) is None
    with pytest.raises(NotFound):
        await bus.settle(outcome(rid, 0, "late"))
    again = manifest(rid, digest="b")
    assert await bus.open_request(again) == again
    assert (await bus.request(rid)).outcomes == {}


async def test_dropping_an_unknown_request_does_nothing(bus):
    other = new_rid()
    await bus.open_request(manifest(other))
    await bus.drop_request(new_rid())
    assert await bus.request(other) is not None


async def test_an_id_used_again_after_its_ttl_starts_without_old_outcomes(lab: Lab):
    bus = await lab.connect(result_ttl_s=1.5, dedupe_window_s=1.0)
    rid = new_rid()
    await bus.open_request(manifest(rid, digest="a"))
    await lab.pass_time(1.0)
    await bus.settle(outcome(rid, 0, "old"))
    await lab.pass_time(1.0)
    assert await bus.request(rid) is None
    fresh = manifest(rid, digest="b")
    assert await bus.open_request(fresh) == fresh
    assert (await bus.request(rid)).outcomes == {}
    assert (await bus.settle(outcome(rid, 0, "new"))).text == "new"


async def test_text_survives_the_wire(bus):
    rid = new_rid()
    await bus.open_request(manifest(rid))
    text = "那个人 👩‍👩‍👧 \x00 \r\n نمی‌خواهم"
    await bus.settle(outcome(rid, 0, text))
    assert (await bus.outcome(rid, 0)).text == text
