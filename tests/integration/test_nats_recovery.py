"""The broker goes away and comes back; no question is lost, none ends twice."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from nats_support import connect, until, when_back

from bus_makers import lease, manifest, new_rid, outcome, questions  # isort: skip
from bus_takes import take_one  # isort: skip
from kev.bus.messages import CancelHint, Delta, Lane, Piece
from kev.bus.nats import NatsBus
from kev.bus.nats.server import LocalNats
from kev.bus.settings import BusSettings
from kev.domain.errors import BusUnavailable

W0 = Lane("w", 0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalNats]:
    with LocalNats(tmp_path / "nats") as running:
        yield running


async def answer(bus: NatsBus) -> bool:
    """What a worker does with one question; False when there is none."""
    some = await bus.take("w", 1)
    if not some:
        return False
    (taken,) = some
    question = taken.question
    if await bus.outcome(question.rid, question.slot) is None:
        await bus.settle(outcome(question.rid, question.slot, f"attempt {taken.attempt}", attempt=taken.attempt))
    await taken.ack()
    return True


async def work_until_settled(bus: NatsBus, rid: str) -> None:
    async with asyncio.timeout(60):
        while (record := await when_back(lambda: bus.request(rid))) is None or record.open_slots():
            if not await when_back(lambda: answer(bus)):
                await asyncio.sleep(0.05)


async def test_a_batch_survives_kills_of_the_broker(server: LocalNats):
    router, worker = await connect(server), await connect(server)
    rid = new_rid()
    await router.open_request(manifest(rid, slots=40))
    assert await router.enqueue(questions(rid, 40, W0)) == frozenset()
    working = asyncio.create_task(work_until_settled(worker, rid))
    for done in (8, 20):
        await until(lambda: when_back(lambda: router.request(rid)), lambda record, n=done: len(record.outcomes) >= n)
        server.stop(kill=True)
        server.start()
    await working
    record = await when_back(lambda: router.request(rid))
    assert record.open_slots() == ()
    async with asyncio.timeout(20):
        while await when_back(router.depths):
            await when_back(lambda: answer(worker))
    assert (await router.request(rid)).outcomes == record.outcomes
    await router.close()
    await worker.close()


async def test_without_a_broker_everything_is_unavailable_and_nothing_is_full(server: LocalNats):
    bus = await connect(server, ack_wait_s=60.0)
    rid = new_rid()
    await bus.open_request(manifest(rid))
    await bus.enqueue(questions(rid, 1, W0))
    taken = await take_one(bus, "w")
    server.stop(kill=True)
    for call in (
        lambda: bus.open_request(manifest(new_rid())),
        lambda: bus.enqueue(questions(rid, 3, W0, first=1)),
        lambda: take_one(bus, "w"),
        lambda: bus.settle(outcome(rid, 0)),
        lambda: bus.outcome(rid, 0),
        lambda: bus.request(rid),
        bus.depths,
        bus.fleet,
        lambda: bus.announce(lease("w")),
        taken.progress,
        taken.ack,
    ):
        with pytest.raises(BusUnavailable, match=r"127\.0\.0\.1"):
            await call()
    await bus.close()


async def test_what_may_be_lost_is_lost_quietly(server: LocalNats):
    bus = await connect(server)
    server.stop(kill=True)
    with pytest.raises(BusUnavailable):
        await bus.depths()
    await bus.publish_delta(Delta(new_rid(), "w", (Piece(0, 1, "w/0", 0, "a"),)))
    await bus.hint_cancel(CancelHint(new_rid(), (0,)))
    assert bus.stats.unsent == 2
    await bus.close()


async def test_a_connection_and_its_subscriptions_survive_a_restart(server: LocalNats):
    router, worker = await connect(server), await connect(server)
    rid = new_rid()
    rung, cancelled = asyncio.Event(), asyncio.Event()
    await worker.on_bell("w", lambda _: rung.set())
    await worker.on_cancel(lambda _: cancelled.set())
    await worker.on_catch_up(lambda _: [Piece(0, 1, "w/0", 0, "so far")])
    await router.open_request(manifest(rid, slots=1))
    async with router.follow(rid) as feed, asyncio.timeout(30):
        server.stop(kill=True)
        server.start()
        await rung.wait()  # after a reconnect every bell rings: one may have been missed
        await when_back(router.depths)
        await when_back(worker.depths)
        rung.clear()
        await router.enqueue(questions(rid, 1, W0))
        await rung.wait()
        await router.hint_cancel(CancelHint(rid, (0,)))
        await cancelled.wait()
        delta = Delta(rid, "w", (Piece(0, 1, "w/0", 0, "a"),))
        await worker.publish_delta(delta)
        assert await anext(feed) == delta
    assert [piece.text for piece in await router.catch_up(rid)] == ["so far"]
    assert worker.stats.reconnects == 1
    await router.close()
    await worker.close()


async def test_who_was_alive_before_a_restart_gets_a_new_lease(server: LocalNats):
    router, worker = await connect(server, lease_s=1.5), await connect(server, lease_s=1.5)
    await worker.announce(lease("w"))
    assert set(await router.fleet()) == {"w"}
    server.stop(kill=True)
    await asyncio.sleep(1.6)
    server.start()
    assert set(await when_back(router.fleet)) == {"w"}
    assert await until(router.fleet, lambda fleet: not fleet) == {}
    await router.close()
    await worker.close()


async def test_nothing_that_was_asked_while_the_broker_was_away_happens_later(server: LocalNats):
    bus = await connect(server)
    rid = new_rid()
    await bus.enqueue(questions(rid, 1, W0))
    server.stop(kill=True)
    for call in (lambda: bus.enqueue(questions(rid, 2, W0, first=5)), lambda: take_one(bus, "w")):
        with pytest.raises(BusUnavailable):
            await call()
    server.start()
    assert await when_back(bus.depths) == {W0: 1}
    taken = await take_one(bus, "w")
    assert taken.attempt == 1
    await bus.close()


async def test_a_broker_that_lost_its_disk_is_made_ready_by_those_who_stayed(server: LocalNats):
    """What was queued is lost. What is asked from then on is not, nor is it acknowledged by who held a lost one."""
    router, worker = await connect(server, ack_wait_s=60.0), await connect(server, ack_wait_s=60.0)
    await router.enqueue(questions(new_rid(), 1, W0))
    lost = await take_one(worker, "w")
    server.stop(kill=True)
    shutil.rmtree(server.directory / "store")
    server.start()
    await until(lambda: when_back(router.depths), lambda depths: depths == {})
    rid = new_rid()
    await when_back(lambda: router.open_request(manifest(rid, slots=1)))
    await router.enqueue(questions(rid, 1, W0))
    await when_back(lambda: worker.announce(lease("w")))
    taken = await take_one(worker, "w")
    assert taken.question.rid == rid
    assert not lost.held
    await lost.ack()
    assert await router.depths() == {W0: 1}
    await taken.ack()
    assert await router.depths() == {}
    assert set(await router.fleet()) == {"w"}
    await router.close()
    await worker.close()


@pytest.mark.parametrize("stream", ["KEV_Q", "KEV_RESULT", "KEV_STRIKE", "KV_kev_fleet", "KV_kev_context"])
async def test_a_stream_that_somebody_deleted_is_made_again(server: LocalNats, stream: str):
    bus = await connect(server)
    client = await nats.connect(server.url)
    await client.jetstream().delete_stream(stream)
    rid = new_rid()
    for call in (
        bus.depths,
        bus.fleet,
        lambda: bus.open_request(manifest(rid, slots=1)),
        lambda: bus.pool_info("none"),
        lambda: bus.announce(lease("w")),
        lambda: bus.enqueue(questions(rid, 1, W0)),
        lambda: bus.strike(rid, 0),
    ):
        await when_back(call)
    await (await take_one(bus, "w")).ack()
    await client.close()
    await bus.close()


async def test_who_only_reads_finds_a_deleted_stream(server: LocalNats):
    reader = await connect(server)
    client = await nats.connect(server.url)
    await client.jetstream().delete_stream("KEV_RESULT")
    assert await when_back(lambda: reader.request(new_rid())) is None
    await client.close()
    await reader.close()


async def test_beats_find_a_deleted_stream_though_others_listen_to_them(server: LocalNats):
    """A watcher hears the beat itself: then nobody tells the worker that no stream does."""
    watcher, worker = await connect(server), await connect(server, request_timeout_s=0.5)
    await worker.announce(lease("w"))
    assert set(await watcher.fleet()) == {"w"}
    client = await nats.connect(server.url)
    await client.jetstream().delete_stream("KV_kev_fleet")
    await when_back(lambda: worker.announce(lease("w")))
    late = await connect(server)
    assert set(await late.fleet()) == {"w"}
    await client.close()
    for bus in (watcher, worker, late):
        await bus.close()


def users(password: str) -> str:
    return f"authorization {{ users = [ {{user: kev, password: {password}}} ] }}\n"


async def test_a_connection_that_the_broker_ends_is_made_anew(tmp_path: Path):
    """The broker throws us out when its users change; when we are welcome again, all goes on."""
    extra = tmp_path / "users.conf"
    extra.write_text(users("right"))
    with LocalNats(tmp_path / "nats", include=extra) as server:
        bus = await connect(server, user="kev", password="right", connect_timeout_s=0.5)
        rung = asyncio.Event()
        await bus.on_bell("w", lambda _: rung.set())
        extra.write_text(users("wrong"))
        server.reload()
        await until(lambda: asyncio.sleep(0, bus.connected), lambda connected: not connected)
        with pytest.raises(BusUnavailable):
            await bus.depths()
        extra.write_text(users("right"))
        server.reload()
        assert await when_back(bus.depths) == {}
        async with asyncio.timeout(10):
            await rung.wait()
            rung.clear()
            await bus.enqueue(questions(new_rid(), 1, W0))
            await rung.wait()
        await bus.close()


async def test_closing_without_a_broker_leaves_nothing_running(server: LocalNats):
    """Otherwise a process that is told to stop while the broker is away would never end."""
    before = asyncio.all_tasks()
    buses = [await connect(server, reconnect_wait_s=0.01) for _ in range(30)]
    server.stop(kill=True)
    for turn, bus in enumerate(buses):
        with pytest.raises(BusUnavailable):
            await bus.depths()
        for _ in range(turn):
            await asyncio.sleep(0)
        await bus.close()
    left = await until(lambda: asyncio.sleep(0, asyncio.all_tasks() - before), lambda tasks: not tasks)
    assert left == set()


async def test_giving_up_on_a_broker_leaves_nothing_running():
    before = asyncio.all_tasks()
    settings = BusSettings(urls=("nats://127.0.0.1:1",), connect_timeout_s=0.2, reconnect_wait_s=0.01)
    tried = await asyncio.gather(*(NatsBus.connect(settings) for _ in range(30)), return_exceptions=True)
    assert {type(one) for one in tried} == {BusUnavailable}
    left = await until(lambda: asyncio.sleep(0, asyncio.all_tasks() - before), lambda tasks: not tasks)
    assert left == set()
