"""The broker's users: each service can do its work over the real bus, and nothing of another's."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kev.bus.messages import CancelHint, Delta, Lane, Piece
from kev.bus.nats import NatsBus
from kev.bus.nats.server import LocalNats
from kev.bus.port import Bus, Taken
from kev.bus.settings import BusSettings
from kev.domain.errors import BusUnavailable

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
USERS = ("router", "inference", "aggregator", "operator")
W0 = Lane("w", 0)
TakeOne = Callable[[Bus, str], Awaitable[Taken]]


@pytest.fixture(scope="module")
def make() -> Iterator[ModuleType]:
    """The makers of messages that the contract suite uses."""
    folder = str(DEPLOY.parent / "tests" / "contract")
    sys.path.insert(0, folder)
    import bus_makers

    yield bus_makers
    sys.path.remove(folder)


@pytest.fixture(scope="module")
def take_one(make: ModuleType) -> TakeOne:
    """How that suite takes: as soon as a question can be had."""
    del make  # it knows the folder
    from bus_takes import take_one as found

    return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNats]:
    """A real broker with the deployment's users."""
    folder = tmp_path_factory.mktemp("nats")
    passwords = "\n".join(f'{user.upper()}_PASSWORD: "kev-{user}"' for user in USERS)
    users = (DEPLOY / "nats" / "users.conf").read_text()
    (folder / "users.conf").write_text(f"{passwords}\n{users}")
    with LocalNats(folder, include=folder / "users.conf") as server:
        yield server


class Desk:
    """Connections as the services make them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._open: list[NatsBus] = []

    async def as_(self, user: str, **changes: Any) -> NatsBus:
        settings = BusSettings(urls=(self._url,), user=user, password=f"kev-{user}", request_timeout_s=2.0, **changes)
        bus = await NatsBus.connect(settings)
        self._open.append(bus)
        return bus

    async def close(self) -> None:
        for bus in self._open:
            await bus.close()


@pytest.fixture
async def desk(broker: LocalNats) -> AsyncIterator[Desk]:
    made = Desk(broker.url)
    yield made
    await made.close()


async def until(event: asyncio.Event) -> None:
    async with asyncio.timeout(10):
        await event.wait()


async def test_a_question_travels_from_the_router_to_the_reader(desk: Desk, make: ModuleType, take_one: TakeOne):
    router, worker, reader = [await desk.as_(user) for user in ("router", "inference", "aggregator")]
    rid, rang = make.new_rid(), asyncio.Event()
    await worker.announce(make.lease("w"))
    bell = await worker.on_bell("w", lambda _: rang.set())
    catching = await worker.on_catch_up(lambda asked: [Piece(0, 1, "w/0", 0, "so far")] if asked == rid else [])
    assert "w" in await router.fleet()

    await router.open_request(make.manifest(rid, slots=2))
    assert await router.enqueue(make.questions(rid, 2, W0)) == frozenset()
    await until(rang)
    assert await router.depths() == {W0: 2}
    async with reader.follow(rid) as hints:
        taken = await take_one(worker, "w")
        assert [piece.text for piece in await reader.catch_up(rid)] == ["so far"]
        await taken.progress()
        await worker.publish_delta(Delta(rid, "w", (Piece(0, 1, "w/0", 0, "yes"),)))
        assert (await anext(hints)).pieces[0].text == "yes"
        await worker.settle(make.outcome(rid, 0))
        await taken.ack()
        assert (await anext(hints)).slot == 0
    second = await take_one(worker, "w")
    await worker.strike(rid, 1)
    await second.give_back()
    await worker.dead_letter(second.question, "crashes", 3)
    await reader.settle(make.outcome(rid, 1))
    assert (await reader.request(rid)).open_slots() == ()
    assert (await worker.outcome(rid, 1)).slot == 1
    await worker.withdraw("w")
    await bell.close()
    await catching.close()


async def test_a_cancel_reaches_the_workers(desk: Desk, make: ModuleType):
    router, worker = await desk.as_("router"), await desk.as_("inference")
    rid, told = make.new_rid(), asyncio.Event()
    listening = await worker.on_cancel(lambda hint: told.set() if hint == CancelHint(rid, (0,)) else None)
    claim = await router.open_request(make.manifest(rid, slots=1))
    await router.settle(make.outcome(rid, 0, text=""))
    await router.hint_cancel(CancelHint(rid, (0,)))
    await until(told)
    await listening.close()
    await router.drop_request(rid, claim.number)
    assert await router.request(rid) is None


async def test_a_long_question_travels_from_the_router_to_the_worker(desk: Desk, make: ModuleType, take_one: TakeOne):
    router, worker = await desk.as_("router"), await desk.as_("inference")
    await worker.announce(make.lease("w", long_channels=1))
    question = make.question(make.new_rid(), 0, Lane("w", 3, long=True))
    assert await router.enqueue([question]) == frozenset()
    taken = await take_one(worker, "w.long")
    assert taken.question == question
    await taken.ack()


async def test_a_context_pool_travels_from_the_router_to_the_worker(desk: Desk, make: ModuleType):
    router, worker = await desk.as_("router"), await desk.as_("inference")
    pool = make.pool("manual", count=200_000)
    await router.put_pool(make.pool("manual"))
    assert await router.put_pool(pool) is True
    assert await worker.pool(pool.info.key) == pool
    assert await router.pools("tests") == (pool.info,)
    assert await router.delete_pool(pool.info.key) is True
    assert await worker.pool(pool.info.key) is None


async def test_the_operator_may_read_dead_letters(desk: Desk, make: ModuleType):
    worker, operator = await desk.as_("inference"), await desk.as_("operator")
    rid = make.new_rid()
    await worker.dead_letter(make.question(rid, 0, W0), "crashes", 3)
    assert rid in {letter.question.rid for letter in await operator.dead_letters()}


ACTS: dict[str, Callable[[NatsBus, ModuleType, str], Any]] = {
    "ask a question": lambda bus, make, rid: bus.enqueue(make.questions(rid, 1, W0)),
    "open a request": lambda bus, make, rid: bus.open_request(make.manifest(rid)),
    "drop a request": lambda bus, make, rid: bus.drop_request(rid, 1),
    "take a question": lambda bus, make, rid: bus.take("express", 1),
    "strike": lambda bus, make, rid: bus.strike(rid, 0),
    "bury": lambda bus, make, rid: bus.dead_letter(make.question(rid, 0, W0), "x", 1),
    "put a context pool": lambda bus, make, rid: bus.put_pool(make.pool("intruder")),
    "delete a context pool": lambda bus, make, rid: bus.delete_pool(make.pool("present").info.key),
    "read a context pool": lambda bus, make, rid: bus.pool(make.pool("present").info.key),
    "beat": lambda bus, make, rid: bus.announce(make.lease("intruder")),
}
FORBIDDEN = [
    ("router", "take a question"),
    ("router", "strike"),
    ("router", "bury"),
    ("router", "beat"),
    ("inference", "ask a question"),
    ("inference", "open a request"),
    ("inference", "drop a request"),
    ("inference", "put a context pool"),
    ("inference", "delete a context pool"),
    ("aggregator", "put a context pool"),
    ("aggregator", "delete a context pool"),
    ("aggregator", "read a context pool"),
    ("aggregator", "ask a question"),
    ("aggregator", "open a request"),
    ("aggregator", "drop a request"),
    ("aggregator", "take a question"),
    ("aggregator", "strike"),
    ("aggregator", "bury"),
    ("aggregator", "beat"),
]


@pytest.mark.parametrize(("user", "act"), FORBIDDEN)
async def test_what_is_anothers_work_is_refused(desk: Desk, make: ModuleType, user: str, act: str):
    await (await desk.as_("router")).put_pool(make.pool("present"))
    bus = await desk.as_(user)
    bus._link._timeout_s = 0.2  # the broker does not answer a forbidden request: waiting longer tells nothing
    errors = bus.stats.errors
    with pytest.raises(BusUnavailable):
        await ACTS[act](bus, make, make.new_rid())
    assert bus.stats.errors > errors, "the broker named no violation"


@pytest.mark.parametrize("user", ["router", "inference", "aggregator"])
async def test_replies_of_others_are_neither_heard_nor_forged(desk: Desk, user: str):
    """Also not those to the shared inbox of clients that name none."""
    bus = await desk.as_(user)
    others = {"router", "inference", "aggregator"} - {user}
    assert bus._link._client.new_inbox().startswith(f"_INBOX_{user}.")
    for inbox in ("_INBOX", *(f"_INBOX_{other}" for other in others)):
        for forbidden in (bus._link.listen(f"{inbox}.>", lambda _: None), bus._link.publish(f"{inbox}.x", b"forged")):
            errors = bus.stats.errors
            await forbidden
            await bus._link.flush()
            assert bus.stats.errors == errors + 1, f"{user} reached {inbox}"


async def test_a_worker_answers_a_reader_once_for_each_time_it_asks(desk: Desk):
    worker, reader = await desk.as_("inference"), await desk.as_("aggregator")
    heard: list[bytes] = []

    async def answer_twice(message: Any) -> None:
        await worker._link.publish(message.reply, b"first")
        await worker._link.publish(message.reply, b"second")

    listening = await worker._link.listen("kev.sync.*", answer_twice)
    await worker._link.flush()
    errors = worker.stats.errors
    replies = await reader._link.gather("kev.sync.x", b"", lambda replies: bool(replies), 5.0)
    heard += [reply.data for reply in replies]
    await worker._link.flush()
    assert heard == [b"first"]
    assert worker.stats.errors == errors + 1
    await listening.close()


async def test_nobody_comes_in_without_a_password(broker: LocalNats):
    for changes in ({}, {"user": "router", "password": "guess"}, {"user": "nobody", "password": "kev-router"}):
        # The broker may close the connection before its reason is read.
        with pytest.raises(BusUnavailable, match=r"[Aa]uthoriz|credentials"):
            await NatsBus.connect(BusSettings(urls=(broker.url,), connect_timeout_s=5.0, **changes))
