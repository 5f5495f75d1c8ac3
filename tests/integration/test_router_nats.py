"""The router over a real broker: killed, doubled and overloaded."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kev.bus.nats import NatsBus
from kev.bus.nats.server import LocalNats
from kev.domain.errors import Overloaded
from kev.domain.ids import rid_of
from kev.domain.result import Submitted
from kev.tokens.model_files import resolve_model
from kev.tokens.tokenizer import Tokenizer
from kev.wire.bus_settings import bus_settings
from router_svc.router import Router
from router_svc.tasks import ended

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit" / "router"))
from router_lab import answer_one, lease, many, settings_with, until

DEADLINE_S = 60
BOUND = 4
KILLED_AT_ENQUEUE = """
import asyncio, os, signal, sys
sys.path[:0] = {paths!r}
from router_lab import many, settings_with
from kev.bus.nats import NatsBus
from kev.tokens.model_files import resolve_model
from kev.tokens.tokenizer import Tokenizer
from kev.wire.bus_settings import bus_settings
from router_svc.router import Router
from router_svc.tasks import ended

class Dying(NatsBus):
    async def enqueue(self, questions):
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    settings = settings_with(**{flags!r})
    bus = await Dying.connect(bus_settings(settings, "dying"))
    router = Router(bus, settings, Tokenizer.load(resolve_model("default")))
    await router.start()
    await router.submit(many(3))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(resolve_model("default"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalNats]:
    with LocalNats(tmp_path) as running:
        yield running


class Lab:
    """One broker, as many connections and routers as a test wants."""

    def __init__(self, server: LocalNats, tokenizer: Tokenizer, stack: AsyncExitStack) -> None:
        self.flags: dict[str, Any] = {"bus__url": server.url, "bus__queue_bound": BOUND}
        self._tokenizer, self._stack = tokenizer, stack

    async def bus(self, name: str = "worker") -> NatsBus:
        bus = await NatsBus.connect(bus_settings(settings_with(**self.flags), name))
        self._stack.push_async_callback(bus.close)
        return bus

    async def router(self, **flags: Any) -> Router:
        settings = settings_with(**{**self.flags, **flags})
        router = Router(
            await self.bus("router"), settings, self._tokenizer, rng=random.Random(1), poll_s=0.1, hurry_s=0.02
        )
        await router.start()
        self._stack.push_async_callback(router.close)
        return router


@pytest.fixture
async def lab(server: LocalNats, tokenizer: Tokenizer) -> AsyncIterator[Lab]:
    async with AsyncExitStack() as stack, asyncio.timeout(DEADLINE_S):
        yield Lab(server, tokenizer, stack)


@pytest.fixture
async def worker(lab: Lab, tokenizer: Tokenizer) -> AsyncIterator[NatsBus]:
    """A worker's connection, two channels, its lease kept alive."""
    bus = await lab.bus()

    async def beat() -> None:
        while True:
            await bus.announce(lease(tokenizer))
            await asyncio.sleep(0.5)

    beating = asyncio.create_task(beat())
    yield bus
    await ended(beating)


async def _served(worker: NatsBus, count: int) -> list[int]:
    """The slots of so many questions, all there are; answers each as soon as it can be had."""
    slots: list[int] = []
    async with asyncio.timeout(20):
        while len(slots) < count:
            if (question := await answer_one(worker)) is not None:
                slots.append(question.slot)
            else:
                await asyncio.sleep(0.005)
    assert await answer_one(worker) is None
    return sorted(slots)


async def test_a_router_killed_between_manifest_and_questions_is_repaired_by_a_retry(lab: Lab, worker: NatsBus) -> None:
    here = str(Path(__file__).resolve().parent.parent / "unit" / "router")
    code = KILLED_AT_ENQUEUE.format(paths=[here], flags=lab.flags)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == -signal.SIGKILL
    record = await worker.request(rid_of("", "r1"))
    assert record is not None
    assert record.open_slots() == (0, 1, 2)
    assert await worker.depths() == {}
    router = await lab.router()
    await until(lambda: router.ready)
    submitted = await router.submit(many(3))
    assert submitted.duplicate
    assert await _served(worker, 3) == [0, 1, 2]


async def test_what_one_router_refuses_for_good_while_another_takes_it_runs_once(lab: Lab, worker: NatsBus) -> None:
    """The first opens the request, finds no room for all of it and gives it up, at any moment of the other's submit.
    Where the other one has put all in before the first looks, nothing lacks room."""
    small = await lab.router(router__overflow_policy="reject")
    large = await lab.router(router__overflow_policy="reject")
    small._assigner.short._queue_bound = 1
    await until(lambda: small.ready and large.ready)
    for trial in range(15):
        await small._watch.poll()
        await large._watch.poll()
        work = [router.submit(many(3, f"t{trial}")) for router in ((small, large), (large, small))[trial % 2]]
        both = await asyncio.gather(*work, return_exceptions=True)
        taken = [one for one in both if isinstance(one, Submitted)]
        assert taken
        assert len(taken) == 1 or sorted(one.duplicate for one in taken) == [False, True]
        assert all(isinstance(one, Submitted | Overloaded) for one in both)
        assert await _served(worker, 3) == [0, 1, 2]
        record = await worker.request(rid_of("", f"t{trial}"))
        assert record is not None, "questions ran and their request is gone"
        assert record.open_slots() == ()


async def test_the_same_id_from_two_routers_at_once_runs_once(lab: Lab, worker: NatsBus) -> None:
    routers = [await lab.router() for _ in range(2)]
    await until(lambda: all(router.ready for router in routers))
    for turn in range(10):
        batch = many(BOUND, f"r{turn}")
        both = await asyncio.gather(*(router.submit(batch) for router in routers))
        assert [submitted.request_id for submitted in both] == [batch.request_id] * 2
        assert await _served(worker, BOUND) == list(range(BOUND))


async def test_overload_keeps_the_bound_and_leaves_no_waiter(lab: Lab, worker: NatsBus) -> None:
    router = await lab.router(router__max_waiters=20)
    await until(lambda: router.ready)
    deepest = 0
    answered: list[int] = []

    async def serve() -> None:
        nonlocal deepest
        while True:
            deepest = max([deepest, *(await worker.depths()).values()])
            question = await answer_one(worker)
            if question is None:
                await asyncio.sleep(0.005)
            else:
                answered.append(question.slot)

    serving = asyncio.create_task(serve())
    submits = [router.submit(many(1, f"r{number}", timeout_ms=20_000)) for number in range(300)]
    results = await asyncio.gather(*submits, return_exceptions=True)
    accepted = [result for result in results if isinstance(result, Submitted)]
    refused = [result for result in results if isinstance(result, Overloaded)]
    assert len(accepted) + len(refused) == len(results)
    assert all(error.retry_after_ms > 0 for error in refused)
    assert router.waiters == 0
    await until(lambda: serving.done() or len(answered) >= len(accepted))
    assert not serving.done(), serving.exception()
    await ended(serving)
    assert len(answered) == len(accepted)
    assert deepest <= BOUND


async def test_a_batch_larger_than_all_queues_goes_in_part_by_part(lab: Lab, worker: NatsBus) -> None:
    router = await lab.router()
    await until(lambda: router.ready)
    submit = asyncio.create_task(router.submit(many(50)))
    assert await _served(worker, 50) == list(range(50))
    assert (await submit).refused_slots == ()
