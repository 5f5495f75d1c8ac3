"""Streams of the aggregator over the memory bus: pieces, records, resuming, slow readers, clean-up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from memory_desk import RID, Desk, until

from aggregator_svc import fanout
from kev.bus.messages import Piece
from kev.domain.errors import InvalidArgument, NotFound, Overloaded
from kev.domain.outcome import Outcome, Status
from kev.domain.result import Frame, ResumePoint


def texts(frames: Sequence[Frame]) -> dict[int, str]:
    shown: dict[int, str] = {}
    for frame in frames:
        before = "" if frame.reset else shown.get(frame.slot, "")
        assert frame.text_offset == len(before)
        shown[frame.slot] = before + frame.text
    return shown


async def test_a_stream_shows_pieces_then_records_and_ends(desk: Desk) -> None:
    await desk.open()
    stream, first = await desk.reading()
    await desk.say(1, 0, "Hel")
    assert (await first).text == "Hel"
    await desk.say(1, 3, "lo")
    await desk.end(1, "Hello!")
    await desk.end(0, "Yes.")
    frames = [await first, *[frame async for frame in stream]]
    assert texts(frames) == {0: "Yes.", 1: "Hello!"}
    assert [frame.slot for frame in frames if frame.result] == [1, 0]
    await until(lambda: desk.idle)


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
    stream, first = await desk.reading()
    await desk.bus.on_catch_up(lambda rid: [Piece(0, 1, "w/0", 0, "abc")])
    await desk.say(0, 3, "def")
    assert (await first).text == "abcdef"
    await stream.aclose()


async def test_a_lost_piece_is_asked_for_again_after_an_error(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggregator_svc.follow.CATCH_UP_PAUSE_S", 0.001)
    await desk.open(1)
    stream, first = await desk.reading()
    await desk.bus.on_catch_up(lambda rid: [Piece(0, 1, "w/0", 0, "abc")])
    catch_up, failed = desk.bus.catch_up, asyncio.Event()

    async def fails_once(rid: str) -> tuple[Piece, ...]:
        if not failed.is_set():
            failed.set()
            raise ValueError("not a piece")
        return await catch_up(rid)

    monkeypatch.setattr(desk.bus, "catch_up", fails_once)
    async with asyncio.timeout(10):
        await desk.say(0, 3, "def")
        await failed.wait()
        await desk.say(0, 6, "ghi")
        assert (await first).text == "abcdefghi"
    await stream.aclose()


async def test_an_outcome_without_a_hint_is_found(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggregator_svc.follow.REREAD_S", 0.05)
    await desk.open(1)
    _, first = await desk.reading()
    monkeypatch.setattr(desk.bus, "_feed", lambda rid, item: None)
    await desk.end(0, "quiet")
    assert (await first).text == "quiet"


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
    await until(lambda: desk.idle)


async def test_a_stream_times_slots_out_by_itself(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggregator_svc.follow.REREAD_S", 0.05)
    await desk.open(1, timeout_ms=1000)
    _, first = await desk.reading()
    desk.clock.now += 3001
    frame = await first
    assert frame.result is not None
    assert frame.result.status == "timed_out"


async def test_a_stream_waits_for_room_to_time_slots_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggregator_svc.follow.REREAD_S", 0.05)
    await desk.open(1, timeout_ms=1000)
    _, first = await desk.reading()
    settle, refused = desk.bus.settle, asyncio.Event()

    async def full(outcome: Outcome) -> Outcome:
        refused.set()
        raise Overloaded("the disk is full")

    monkeypatch.setattr(desk.bus, "settle", full)
    desk.clock.now += 3001
    await refused.wait()
    monkeypatch.setattr(desk.bus, "settle", settle)
    frame = await first
    assert frame.result is not None
    assert frame.result.status == "timed_out"


async def test_a_full_broker_is_not_asked_again_because_its_own_refusal_was_heard_as_a_hint(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever follows hears also what the broker then refuses to store: the follower its own placeholder."""
    monkeypatch.setattr("aggregator_svc.follow.REREAD_S", 0.2)
    await desk.open(1, timeout_ms=1000)
    _, first = await desk.reading()
    settle, asked = desk.bus.settle, 0

    async def full(outcome: Outcome) -> Outcome:
        nonlocal asked
        asked += 1
        desk.bus._feed(outcome.rid, outcome)
        raise Overloaded("the disk is full")

    monkeypatch.setattr(desk.bus, "settle", full)
    desk.clock.now += 3001
    await asyncio.sleep(0.7)
    assert 1 <= asked <= 4
    monkeypatch.setattr(desk.bus, "settle", settle)
    frame = await first
    assert frame.result is not None
    assert frame.result.status == "timed_out"


async def test_what_is_stored_is_read_while_there_is_no_room_for_placeholders(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator_svc.follow.REREAD_S", 0.05)
    await desk.open(2, timeout_ms=1000)
    frames, first = await desk.reading()
    settle, refused = desk.bus.settle, asyncio.Event()

    async def full(outcome: Outcome) -> Outcome:
        if outcome.status is Status.ANSWERED:
            return await settle(outcome)
        refused.set()
        raise Overloaded("the disk is full")

    monkeypatch.setattr(desk.bus, "settle", full)
    desk.clock.now += 3001
    await refused.wait()
    await desk.end(1, "in time")
    frame = await first
    assert (frame.slot, frame.text) == (1, "in time")
    monkeypatch.setattr(desk.bus, "settle", settle)
    last = await anext(frames)
    assert last.result is not None
    assert (last.slot, last.result.status) == (0, "timed_out")


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
    await until(lambda: desk.bus._feeds)
    assert len(desk.bus._feeds[RID]) == 1
    for offset, letter in enumerate("stream"):
        await desk.say(0, offset, letter)
        await asyncio.sleep(0)
    await desk.end(0, "streams")
    assert set(await asyncio.gather(*readers)) == {"streams"}
    await until(lambda: desk.idle)


async def test_a_slow_reader_gets_longer_pieces_and_loses_nothing(desk: Desk) -> None:
    await desk.open(1)
    stream, first = await desk.reading()
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
    stream, reading = await desk.reading()
    if how == "cancel":
        reading.cancel()
    else:
        await desk.say(0, 0, "x")
        await reading
        await stream.aclose()
    await asyncio.gather(reading, return_exceptions=True)
    await until(lambda: desk.idle)


async def test_a_request_that_vanishes_ends_its_readers(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggregator_svc.follow.REREAD_S", 0.05)
    await desk.open()
    reading = asyncio.ensure_future(anext(desk.aggregator.stream("", "req")))
    await until(lambda: desk.bus._feeds)
    await desk.bus.drop_request(RID, desk.claim.number)
    with pytest.raises(NotFound):
        await reading
