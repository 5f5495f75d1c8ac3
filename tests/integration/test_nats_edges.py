"""What only a real broker can do to us."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nats
import pytest
from nats_support import connect, until

from bus_makers import lease, manifest, new_rid, outcome, questions  # isort: skip
from bus_takes import all_there, take_one, take_some  # isort: skip
from kev.bus.messages import Lane, Piece
from kev.bus.nats.server import LocalNats
from kev.domain.errors import Overloaded
from kev.domain.outcome import Outcome, Status

W0 = Lane("w", 0)


@pytest.mark.parametrize("rubbish", [b"", b"\xff\x00", b"{}", b"\x81\xa3rid\x01"], ids=repr)
async def test_what_is_no_question_is_buried_and_never_stops_a_worker(server: LocalNats, rubbish: bytes):
    bus = await connect(server, namespace="bad")
    client = await nats.connect(server.url)
    await client.jetstream().publish("bad.q.w.0", rubbish)
    rid = new_rid()
    await bus.enqueue(questions(rid, 1, W0))
    buried = (await client.jetstream().stream_info("BAD_DLQ")).state.messages
    taken = await take_one(bus, "w")
    assert taken.question.rid == rid
    await taken.ack()
    assert bus.stats.undecodable == 1
    assert await bus.depths() == {}
    assert (await client.jetstream().stream_info("BAD_DLQ")).state.messages == buried + 1
    assert await bus.dead_letters() == ()
    await client.close()
    await bus.close()


async def test_rubbish_among_several_is_buried_and_its_place_is_used(server: LocalNats):
    bus = await connect(server, namespace="bads")
    client = await nats.connect(server.url)
    rid = new_rid()
    await bus.enqueue(questions(rid, 2, W0))
    for _ in range(2):
        await client.jetstream().publish("bads.q.w.0", b"rubbish")
    await bus.enqueue(questions(rid, 3, W0, first=2))
    taken = await take_some(bus, "w", 5)
    assert [one.question.slot for one in taken] == [0, 1, 2, 3, 4]
    assert bus.stats.undecodable == 2
    assert await bus.depths() == {W0: 5}
    await client.close()
    await bus.close()


@pytest.mark.parametrize(("says", "undecodable"), [(b"", 0), (b"\xff", 1), (b"\x01", 1)], ids=repr)
async def test_a_bell_that_does_not_say_where_is_heard(server: LocalNats, says: bytes, undecodable: int):
    bus = await connect(server, namespace="bells")
    client = await nats.connect(server.url)
    heard: asyncio.Queue[frozenset[str]] = asyncio.Queue()
    await bus.on_bell("w", heard.put_nowait)
    await client.publish("bells.bell.w", says)
    async with asyncio.timeout(10):
        assert await heard.get() == frozenset()
    assert bus.stats.undecodable == undecodable
    await client.close()
    await bus.close()


async def test_those_in_hand_are_kept_when_rubbish_among_them_cannot_be_buried(
    server: LocalNats, monkeypatch: pytest.MonkeyPatch
):
    bus = await connect(server, namespace="badkept")
    client = await nats.connect(server.url)
    rid = new_rid()
    await bus.enqueue(questions(rid, 2, W0))
    await client.jetstream().publish("badkept.q.w.0", b"rubbish")

    async def full(*_: object) -> None:
        raise Overloaded("no room for dead letters")

    await all_there(bus, "w", 3)
    monkeypatch.setattr(bus._take, "_reject", full)
    assert [one.question.slot for one in await bus.take("w", 3)] == [0, 1]
    await client.close()
    await bus.close()


async def test_an_outcome_that_cannot_be_read_is_a_failed_slot_and_hurts_no_other(server: LocalNats):
    bus = await connect(server, namespace="badout")
    client = await nats.connect(server.url)
    rid = new_rid()
    await bus.open_request(manifest(rid, 5))
    await bus.settle(outcome(rid, 1))
    await client.jetstream().publish(f"badout.result.{rid}.0", b"rubbish")
    bad, good, *others = await asyncio.gather(*(bus.outcome(rid, slot) for slot in range(5)))
    assert bad is not None
    assert (bad.slot, bad.status, bad.reason) == (0, Status.FAILED, "unreadable")
    assert good == outcome(rid, 1)
    assert others == [None, None, None]
    record = await bus.request(rid)
    assert record is not None
    assert record.outcomes == {0: bad, 1: good}
    assert await bus.settle(outcome(rid, 0)) == bad
    await client.close()
    await bus.close()


async def test_rubbish_on_the_fast_paths_is_counted_and_ignored(server: LocalNats):
    bus = await connect(server, namespace="fast", lease_s=60.0)
    client = await nats.connect(server.url)
    rid = new_rid()
    heard = asyncio.Event()
    await bus.on_cancel(lambda _: heard.set())
    await bus.announce(lease("w"))
    await bus.fleet()
    async with bus.follow(rid):
        for subject in (f"fast.delta.{rid}", f"fast.result.{rid}.0", "fast.cancel.x", "$KV.fast_fleet.other"):
            await client.publish(subject, b"\xff")
        await client.flush()
        await until(bus.fleet, lambda _: bus.stats.undecodable == 4)
    assert set(await bus.fleet()) == {"w"}
    assert not heard.is_set()
    await client.close()
    await bus.close()


@pytest.mark.parametrize("most", [1, 4])
async def test_a_take_that_is_cancelled_swallows_nothing(server: LocalNats, most: int):
    bus = await connect(server, namespace=f"cancelled{most}", ack_wait_s=60.0)
    rid = new_rid()
    await bus.enqueue(questions(rid, 20, W0))
    slots: set[int] = set()
    for number in range(400):
        taking = asyncio.create_task(bus.take("w", most))
        for _ in range(number % 14):
            await asyncio.sleep(0)
        taking.cancel()
        try:
            some = await taking
        except asyncio.CancelledError:
            continue
        for taken in some:
            slots.add(taken.question.slot)
            await taken.ack()
    async with asyncio.timeout(20):
        while len(slots) < 20:
            if not (some := await bus.take("w", most)):
                await asyncio.sleep(0.01)
            for taken in some:
                slots.add(taken.question.slot)
                await taken.ack()
    assert await bus.depths() == {}
    await bus.close()


async def test_a_durable_that_somebody_deleted_is_made_again(server: LocalNats):
    bus = await connect(server, namespace="gone")
    await bus.enqueue(questions(new_rid(), 2, W0))
    await (await take_one(bus, "w")).ack()
    client = await nats.connect(server.url)
    await client.jetstream().delete_consumer("GONE_Q", "worker-w")
    assert (await take_one(bus, "w")).question.slot == 1
    await client.close()
    await bus.close()


async def test_a_request_with_more_slots_than_one_read_returns(server: LocalNats):
    bus = await connect(server, namespace="wide")
    rid = new_rid()
    await bus.open_request(manifest(rid, slots=1100))
    await asyncio.gather(*(bus.settle(outcome(rid, slot, str(slot))) for slot in range(1100)))
    record = await bus.request(rid)
    assert {slot: one.text for slot, one in record.outcomes.items()} == {slot: str(slot) for slot in range(1100)}
    await bus.close()


async def test_a_request_whose_outcomes_are_larger_than_one_answer(server: LocalNats):
    bus = await connect(server, namespace="big")
    rid = new_rid()
    await bus.open_request(manifest(rid, slots=90))
    for slot in range(90):
        await bus.settle(outcome(rid, slot, chr(97 + slot % 26) * 800_000))
    record = await bus.request(rid)
    assert record.open_slots() == ()
    assert all(set(one.text) == {chr(97 + slot % 26)} for slot, one in record.outcomes.items())
    await bus.close()


async def test_catch_up_does_not_wait_for_slots_that_nobody_runs(server: LocalNats):
    """Three slots are open, one runs: all living workers have answered, so it ends."""
    bus = await connect(server, namespace="sync", catch_up_s=100.0, lease_s=60.0)
    rid = new_rid()
    await bus.open_request(manifest(rid, slots=3))
    for name in ("a", "b"):
        await bus.announce(lease(name))
    await bus.on_catch_up(lambda _: [Piece(1, 1, "a/0", 0, "text")])
    await bus.on_catch_up(lambda _: [])
    async with asyncio.timeout(10):
        assert await bus.catch_up(rid) == (Piece(1, 1, "a/0", 0, "text"),)
    await bus.close()


async def test_catch_up_does_not_wait_for_ever(server: LocalNats):
    bus = await connect(server, namespace="sync2", catch_up_s=0.1, lease_s=60.0)
    rid = new_rid()
    await bus.open_request(manifest(rid, slots=3))
    for name in ("a", "b"):
        await bus.announce(lease(name))
    await bus.on_catch_up(lambda _: [Piece(1, 1, "a/0", 0, "text")])
    async with asyncio.timeout(10):
        assert await bus.catch_up(rid) == (Piece(1, 1, "a/0", 0, "text"),)
    await bus.close()


async def test_a_full_disk_refuses_new_work_and_loses_none(tmp_path: Path):
    small = tmp_path / "small.conf"
    small.write_text(f'jetstream {{ store_dir: "{tmp_path}/store", max_file_store: 300KB }}\n')
    with LocalNats(tmp_path / "nats", include=small) as server:
        bus = await connect(server, queue_bound=1000)
        rid = new_rid()
        await bus.open_request(manifest(rid, slots=20))
        tried = await asyncio.gather(
            *(bus.settle(outcome(rid, slot, "x" * 30_000)) for slot in range(20)), return_exceptions=True
        )
        assert {type(one) for one in tried} == {Outcome, Overloaded}
        record = await bus.request(rid)
        assert record.outcomes == {slot: one for slot, one in enumerate(tried) if isinstance(one, Outcome)}
        for _ in range(100):
            before = await bus.depths()
            try:
                assert await bus.enqueue(questions(new_rid(), 10, W0)) == frozenset()
            except Overloaded:
                break
        else:
            raise AssertionError("a disk of 300 KB took 100 batches")
        assert await bus.depths() == before
        await bus.close()
