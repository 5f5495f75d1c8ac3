"""Results of the aggregator over the memory bus: polls, waits, placeholders, and how a wait ends early."""

from __future__ import annotations

import asyncio

import pytest
from memory_desk import RID, Desk, until

from kev.bus.messages import RequestRecord
from kev.domain.errors import BusUnavailable, NotFound
from kev.domain.outcome import FinishReason, Outcome, Status
from kev.domain.question import ResultMode


@pytest.mark.parametrize(("tenant", "request_id"), [("", "other"), ("somebody", "req")])
async def test_unknown_and_foreign_requests_are_not_found(desk: Desk, tenant: str, request_id: str) -> None:
    await desk.open()
    with pytest.raises(NotFound, match=request_id):
        await anext(desk.aggregator.stream(tenant, request_id))
    with pytest.raises(NotFound, match=request_id):
        await desk.aggregator.results(tenant, request_id, 5)
    await until(lambda: desk.idle)


async def test_polling_gives_pending_slots(desk: Desk) -> None:
    await desk.open()
    await desk.end(1, "b")
    results = await desk.aggregator.results("", "req")
    assert [(r.slot, r.status, r.text) for r in results.results] == [(0, "pending", ""), (1, "answered", "b")]
    assert not results.complete


async def test_waiting_ends_when_the_last_slot_ends(desk: Desk) -> None:
    await desk.open(mode=ResultMode.SEQ_APPEND)
    waiting = asyncio.ensure_future(desk.aggregator.results("", "req", None))
    await until(lambda: desk.bus._feeds)
    await desk.end(1, "b", finished_ms=1)
    await desk.end(0, "a", finished_ms=2)
    results = await waiting
    assert results.complete
    assert [result.slot for result in results.results] == [1, 0]
    await until(lambda: desk.idle)


async def test_a_wait_that_is_too_short_gives_what_there_is(desk: Desk) -> None:
    await desk.open()
    await desk.end(0, "a")
    results = await desk.aggregator.results("", "req", 0.05)
    assert [result.status for result in results.results] == ["answered", "pending"]
    await until(lambda: desk.idle)


async def test_waiting_does_not_poll_busily(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.open()
    reads = 0
    read = desk.bus.request

    async def counted(rid: str) -> RequestRecord | None:
        nonlocal reads
        reads += 1
        return await read(rid)

    monkeypatch.setattr(desk.bus, "request", counted)
    waiters = [asyncio.ensure_future(desk.aggregator.results("", "req", 0.5)) for _ in range(50)]
    await asyncio.gather(*waiters)
    assert reads <= 50 + 3, "one look each, and one follower for all"


async def test_a_refused_hint_is_not_believed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggregator_svc.follow.REREAD_S", 0.05)
    await desk.open(1)
    waiting = asyncio.ensure_future(desk.aggregator.results("", "req", 30))
    await until(lambda: desk.bus._feeds)
    liar = Outcome("req", RID, 0, Status.FAILED, FinishReason.ERROR, text="never stored")
    desk.bus._feed(RID, liar)
    await asyncio.sleep(0.1)
    await desk.end(0, "truth")
    (result,) = (await waiting).results
    assert result.text == "truth"


async def test_a_hint_that_is_heard_before_its_record_is_stored_is_read_as_soon_as_it_is(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator_svc.follow.REREAD_S", 3600.0)
    await desk.open(2)
    waiting = asyncio.ensure_future(desk.aggregator.results("", "req", 30))
    await until(lambda: desk.bus._feeds)
    read, looks, early = desk.bus.outcome, 0, 3

    async def not_stored_yet(rid: str, slot: int) -> Outcome | None:
        nonlocal looks
        looks += 1
        return None if looks <= early else await read(rid, slot)

    monkeypatch.setattr(desk.bus, "outcome", not_stored_yet)
    await desk.end(0, "first")
    await desk.end(1, "second")
    async with asyncio.timeout(10):
        results = (await waiting).results
    assert [result.text for result in results] == ["first", "second"]


async def test_many_hints_that_are_each_heard_too_early_make_none_of_them_wait_for_the_re_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator_svc.follow.REREAD_S", 3600.0)
    slots, looked, stored = 40, set[int](), set[int]()
    await desk.open(slots)
    waiting = asyncio.ensure_future(desk.aggregator.results("", "req", 30))
    await until(lambda: desk.bus._feeds)
    read = desk.bus.outcome

    async def stored_after_the_next_hint(rid: str, slot: int) -> Outcome | None:
        looked.add(slot)
        return await read(rid, slot) if slot in stored else None

    monkeypatch.setattr(desk.bus, "outcome", stored_after_the_next_hint)
    for slot in range(slots):
        await desk.end(slot, f"answer {slot}")
        await until(lambda slot=slot: slot in looked)
        stored.add(slot - 1)
    stored.add(slots - 1)
    async with asyncio.timeout(10):
        results = (await waiting).results
    assert [result.text for result in results] == [f"answer {slot}" for slot in range(slots)]


async def test_past_deadline_and_grace_reading_times_a_slot_out(desk: Desk) -> None:
    await desk.open(1, timeout_ms=1000)
    desk.clock.now += 3000
    (result,) = (await desk.aggregator.results("", "req")).results
    assert result.status == "pending"
    desk.clock.now += 1
    (result,) = (await desk.aggregator.results("", "req")).results
    assert result.status == "timed_out"
    stored = await desk.bus.outcome(RID, 0)
    assert stored is not None
    assert stored.status is Status.TIMED_OUT


async def test_a_record_beats_the_placeholder(desk: Desk) -> None:
    await desk.open(1, timeout_ms=1000)
    await desk.end(0, "just in time")
    desk.clock.now += 60_000
    (result,) = (await desk.aggregator.results("", "req")).results
    assert (result.status, result.text) == ("answered", "just in time")


async def test_closing_tells_readers_and_waiters(desk: Desk) -> None:
    await desk.open()
    reading = asyncio.ensure_future(anext(desk.aggregator.stream("", "req")))
    waiting = asyncio.ensure_future(desk.aggregator.results("", "req", 60))
    await until(lambda: desk.bus._feeds and len(desk.aggregator._followers) == 1)
    await asyncio.sleep(0.01)
    await desk.aggregator.close()
    for call in (reading, waiting):
        with pytest.raises(BusUnavailable, match="stopping"):
            await call
    with pytest.raises(BusUnavailable):
        await anext(desk.aggregator.stream("", "req"))
    await until(lambda: desk.idle)


async def test_a_broker_that_is_silent_for_a_while_is_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggregator_svc.follow.REREAD_S", 0.02)
    await desk.open(1)
    waiting = asyncio.ensure_future(desk.aggregator.results("", "req", 30))
    await until(lambda: desk.bus._feeds)
    read, silent = desk.bus.request, 3

    async def shaky(rid: str) -> RequestRecord | None:
        nonlocal silent
        silent -= 1
        if silent >= 0:
            raise BusUnavailable("no answer")
        return await read(rid)

    monkeypatch.setattr(desk.bus, "request", shaky)
    monkeypatch.setattr(desk.bus, "_feed", lambda rid, item: None)
    await desk.end(0, "back")
    assert (await waiting).results[0].text == "back"
