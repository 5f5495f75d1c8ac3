"""The aggregator over the memory bus: streams, waits, placeholders, clean-up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from aggregator_svc import fanout
from aggregator_svc.aggregator import Aggregator
from kev.bus.memory import MemoryBus
from kev.bus.messages import Delta, Manifest, Piece, RequestRecord, SlotPlan
from kev.config.settings import Settings
from kev.domain.errors import BusUnavailable, InvalidArgument, NotFound
from kev.domain.ids import rid_of
from kev.domain.outcome import Audit, FinishReason, Outcome, Status, text_digest
from kev.domain.question import Isolation, ResultMode
from kev.domain.result import Frame, ResumePoint

RID = rid_of("", "req")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


class Desk:
    """A memory bus with one request on it, and the aggregator."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.bus = MemoryBus()
        self.aggregator = Aggregator(self.bus, Settings(), clock=self.clock)

    async def open(self, slots: int = 2, mode: ResultMode = ResultMode.SLOT_MAP, timeout_ms: int = 60_000) -> None:
        now = self.clock.now
        plans = tuple(SlotPlan(slot, now + timeout_ms, f"q{slot}") for slot in range(slots))
        self.claim = await self.bus.open_request(
            Manifest(RID, "req", "", "d", now, 2000, Isolation.STRICT, mode, plans),
        )

    async def say(self, slot: int, offset: int, text: str, attempt: int = 1) -> None:
        await self.bus.publish_delta(Delta(RID, "w", (Piece(slot, attempt, f"w/{slot}", offset, text),)))

    async def end(self, slot: int, text: str, attempt: int = 1, finished_ms: int = 0) -> None:
        await self.bus.settle(
            Outcome(
                "req",
                RID,
                slot,
                Status.ANSWERED,
                FinishReason.STOP,
                f"q{slot}",
                text,
                len(text),
                text_digest(text),
                attempt,
                audit=Audit(finished_ms=finished_ms),
            )
        )

    @property
    def idle(self) -> bool:
        return not (self.aggregator._followers or self.aggregator._tasks or self.bus._feeds)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    yield made
    await made.aggregator.close()


async def _until(condition: object) -> None:
    assert callable(condition)
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come about")


def texts(frames: Sequence[Frame]) -> dict[int, str]:
    shown: dict[int, str] = {}
    for frame in frames:
        before = "" if frame.reset else shown.get(frame.slot, "")
        assert frame.text_offset == len(before)
        shown[frame.slot] = before + frame.text
    return shown


async def test_a_stream_shows_pieces_then_records_and_ends(desk: Desk) -> None:
    await desk.open()
    stream = desk.aggregator.stream("", "req")
    first = asyncio.ensure_future(anext(stream))
    await _until(lambda: desk.bus._feeds)
    await asyncio.sleep(0)
    await desk.say(1, 0, "Hel")
    assert (await first).text == "Hel"
    await desk.say(1, 3, "lo")
    await desk.end(1, "Hello!")
    await desk.end(0, "Yes.")
    frames = [await first, *[frame async for frame in stream]]
    assert texts(frames) == {0: "Yes.", 1: "Hello!"}
    assert [frame.slot for frame in frames if frame.result] == [1, 0]
    await _until(lambda: desk.idle)


async def test_groups_hold_what_is_ready_together_and_nothing_is_lost(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fanout, "GROUP", 3)
    await desk.open(slots=4)
    for slot in range(4):
        await desk.end(slot, f"text {slot}")
    async with desk.aggregator.reading("", "req", ()) as reader:
        groups = [group async for group in reader.groups()]
    assert [len(group) for group in groups] == [3, 1]
    assert texts([frame for group in groups for frame in group]) == {slot: f"text {slot}" for slot in range(4)}


async def test_a_group_ends_with_the_frame_that_makes_it_long(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "GROUP_CHARACTERS", 10)
    await desk.open(slots=3)
    for slot in range(3):
        await desk.end(slot, "four")
    async with desk.aggregator.reading("", "req", ()) as reader:
        assert [len(group) async for group in reader.groups()] == [2, 1]


async def test_groups_end_with_pending_frames_when_the_time_is_up(desk: Desk) -> None:
    await desk.open(slots=2)
    await desk.end(1, "done")
    async with desk.aggregator.reading("", "req", ()) as reader:
        groups = [group async for group in reader.groups(0.01)]
    assert [frame.result.status for group in groups for frame in group if frame.result] == ["answered", "pending"]


async def test_a_stream_of_a_finished_request_gives_everything(desk: Desk) -> None:
    await desk.open()
    await desk.end(0, "a")
    await desk.end(1, "b")
    assert texts([frame async for frame in desk.aggregator.stream("", "req")]) == {0: "a", 1: "b"}


async def test_a_late_reader_gets_the_text_from_the_workers(desk: Desk) -> None:
    await desk.open(1)
    desk.clock.now += 5000
    await desk.bus.on_catch_up(lambda rid: [Piece(0, 1, "w/0", 0, "so far")] if rid == RID else [])
    stream = desk.aggregator.stream("", "req")
    frame = await anext(stream)
    assert (frame.text, frame.channel) == ("so far", "w/0")
    await stream.aclose()


async def test_a_lost_piece_is_asked_for(desk: Desk) -> None:
    await desk.open(1)
    stream = desk.aggregator.stream("", "req")
    first = asyncio.ensure_future(anext(stream))
    await _until(lambda: desk.bus._feeds)
    await asyncio.sleep(0)
    await desk.bus.on_catch_up(lambda rid: [Piece(0, 1, "w/0", 0, "abc")])
    await desk.say(0, 3, "def")
    assert (await first).text == "abcdef"
    await stream.aclose()


async def test_an_outcome_without_a_hint_is_found(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggregator_svc.follow.REREAD_S", 0.05)
    await desk.open(1)
    stream = desk.aggregator.stream("", "req")
    first = asyncio.ensure_future(anext(stream))
    await _until(lambda: desk.bus._feeds)
    monkeypatch.setattr(desk.bus, "_feed", lambda rid, item: None)
    await desk.end(0, "quiet")
    assert (await first).text == "quiet"


async def test_a_refused_hint_is_not_believed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggregator_svc.follow.REREAD_S", 0.05)
    await desk.open(1)
    waiting = asyncio.ensure_future(desk.aggregator.results("", "req", 30))
    await _until(lambda: desk.bus._feeds)
    liar = Outcome("req", RID, 0, Status.FAILED, FinishReason.ERROR, text="never stored")
    desk.bus._feed(RID, liar)
    await asyncio.sleep(0.1)
    await desk.end(0, "truth")
    (result,) = (await waiting).results
    assert result.text == "truth"


async def test_resuming_continues_where_the_reader_stands(desk: Desk) -> None:
    await desk.open(2)
    await desk.end(0, "abcdef")
    await desk.end(1, "xyz", attempt=2)
    points = (ResumePoint(0, 1, 4), ResumePoint(1, 1, 2))
    frames = {frame.slot: frame async for frame in desk.aggregator.stream("", "req", points)}
    assert (frames[0].text_offset, frames[0].text, frames[0].reset) == (4, "ef", False)
    assert (frames[1].text_offset, frames[1].text, frames[1].reset) == (0, "xyz", True)


async def test_a_bad_resume_point_is_refused(desk: Desk) -> None:
    await desk.open(1)
    with pytest.raises(InvalidArgument, match="slot"):
        await anext(desk.aggregator.stream("", "req", [ResumePoint(9, 1, 1)]))
    await _until(lambda: desk.idle)


@pytest.mark.parametrize(("tenant", "request_id"), [("", "other"), ("somebody", "req")])
async def test_unknown_and_foreign_requests_are_not_found(desk: Desk, tenant: str, request_id: str) -> None:
    await desk.open()
    with pytest.raises(NotFound, match=request_id):
        await anext(desk.aggregator.stream(tenant, request_id))
    with pytest.raises(NotFound, match=request_id):
        await desk.aggregator.results(tenant, request_id, 5)
    await _until(lambda: desk.idle)


async def test_polling_gives_pending_slots(desk: Desk) -> None:
    await desk.open()
    await desk.end(1, "b")
    results = await desk.aggregator.results("", "req")
    assert [(r.slot, r.status, r.text) for r in results.results] == [(0, "pending", ""), (1, "answered", "b")]
    assert not results.complete


async def test_waiting_ends_when_the_last_slot_ends(desk: Desk) -> None:
    await desk.open(mode=ResultMode.SEQ_APPEND)
    waiting = asyncio.ensure_future(desk.aggregator.results("", "req", None))
    await _until(lambda: desk.bus._feeds)
    await desk.end(1, "b", finished_ms=1)
    await desk.end(0, "a", finished_ms=2)
    results = await waiting
    assert results.complete
    assert [result.slot for result in results.results] == [1, 0]
    await _until(lambda: desk.idle)


async def test_a_wait_that_is_too_short_gives_what_there_is(desk: Desk) -> None:
    await desk.open()
    await desk.end(0, "a")
    results = await desk.aggregator.results("", "req", 0.05)
    assert [result.status for result in results.results] == ["answered", "pending"]
    await _until(lambda: desk.idle)


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


async def test_a_stream_times_slots_out_by_itself(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggregator_svc.follow.REREAD_S", 0.05)
    await desk.open(1, timeout_ms=1000)
    stream = desk.aggregator.stream("", "req")
    first = asyncio.ensure_future(anext(stream))
    await _until(lambda: desk.bus._feeds)
    desk.clock.now += 3001
    frame = await first
    assert frame.result is not None
    assert frame.result.status == "timed_out"


async def test_a_record_beats_the_placeholder(desk: Desk) -> None:
    await desk.open(1, timeout_ms=1000)
    await desk.end(0, "just in time")
    desk.clock.now += 60_000
    (result,) = (await desk.aggregator.results("", "req")).results
    assert (result.status, result.text) == ("answered", "just in time")


async def test_a_reader_that_leaves_in_time_gets_pending_frames(desk: Desk) -> None:
    await desk.open()
    await desk.end(0, "a")
    frames = [frame async for frame in desk.aggregator.stream("", "req", wait_s=0.05)]
    assert [(f.slot, f.result.status if f.result else "") for f in frames] == [(0, "answered"), (1, "pending")]


async def test_many_readers_share_one_follower_and_each_gets_all(desk: Desk) -> None:
    await desk.open(1)

    async def read() -> str:
        return texts([frame async for frame in desk.aggregator.stream("", "req")])[0]

    readers = [asyncio.ensure_future(read()) for _ in range(20)]
    await _until(lambda: desk.bus._feeds)
    assert len(desk.bus._feeds[RID]) == 1
    for offset, letter in enumerate("stream"):
        await desk.say(0, offset, letter)
        await asyncio.sleep(0)
    await desk.end(0, "streams")
    assert set(await asyncio.gather(*readers)) == {"streams"}
    await _until(lambda: desk.idle)


async def test_a_slow_reader_gets_longer_pieces_and_loses_nothing(desk: Desk) -> None:
    await desk.open(1)
    stream = desk.aggregator.stream("", "req")
    first = asyncio.ensure_future(anext(stream))
    await _until(lambda: desk.bus._feeds)
    await asyncio.sleep(0)
    await desk.say(0, 0, "0")
    frames = [await first]
    for offset in range(1, 5000):
        await desk.say(0, offset, str(offset % 10))
        await asyncio.sleep(0)
    whole = "".join(str(offset % 10) for offset in range(5000))
    await desk.end(0, whole)
    frames += [frame async for frame in stream]
    assert texts(frames) == {0: whole}
    assert len(frames) <= 4


@pytest.mark.parametrize("how", ["aclose", "cancel"])
async def test_a_reader_that_leaves_leaves_nothing_behind(desk: Desk, how: str) -> None:
    await desk.open()
    stream = desk.aggregator.stream("", "req")
    reading = asyncio.ensure_future(anext(stream))
    await _until(lambda: desk.bus._feeds)
    if how == "cancel":
        reading.cancel()
    else:
        await desk.say(0, 0, "x")
        await reading
        await stream.aclose()
    await asyncio.gather(reading, return_exceptions=True)
    await _until(lambda: desk.idle)


async def test_closing_tells_readers_and_waiters(desk: Desk) -> None:
    await desk.open()
    reading = asyncio.ensure_future(anext(desk.aggregator.stream("", "req")))
    waiting = asyncio.ensure_future(desk.aggregator.results("", "req", 60))
    await _until(lambda: desk.bus._feeds and len(desk.aggregator._followers) == 1)
    await asyncio.sleep(0.01)
    await desk.aggregator.close()
    for call in (reading, waiting):
        with pytest.raises(BusUnavailable, match="stopping"):
            await call
    with pytest.raises(BusUnavailable):
        await anext(desk.aggregator.stream("", "req"))
    await _until(lambda: desk.idle)


async def test_a_request_that_vanishes_ends_its_readers(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggregator_svc.follow.REREAD_S", 0.05)
    await desk.open()
    reading = asyncio.ensure_future(anext(desk.aggregator.stream("", "req")))
    await _until(lambda: desk.bus._feeds)
    await desk.bus.drop_request(RID, desk.claim.number)
    with pytest.raises(NotFound):
        await reading


async def test_a_broker_that_is_silent_for_a_while_is_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggregator_svc.follow.REREAD_S", 0.02)
    await desk.open(1)
    waiting = asyncio.ensure_future(desk.aggregator.results("", "req", 30))
    await _until(lambda: desk.bus._feeds)
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
