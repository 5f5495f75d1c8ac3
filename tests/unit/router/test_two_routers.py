"""One request at two routers at once, in every order of their steps: it runs once, or is gone, and never in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from router_lab import answer_one, lease, many, taken_from

from kev.bus.memory import MemoryBus
from kev.bus.settings import BusSettings
from kev.domain.errors import Overloaded
from kev.domain.ids import rid_of
from kev.domain.result import Submitted
from kev.tokens.tokenizer import Tokenizer
from router_svc.router import Router

Start = Callable[..., Any]
TRIALS = 60
COUNT = 3


class Shaken(MemoryBus):
    """Every call takes a random number of turns of the loop before and after it does its work."""

    rng = random.Random(1)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return self._shaken(found) if name in ("open_request", "drop_request", "enqueue", "request") else found

    def _shaken(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def late(*args: Any) -> Any:
            await self._turns()
            result = await call(*args)
            await self._turns()
            return result

        return late

    async def _turns(self) -> None:
        for _ in range(self.rng.randrange(6)):
            await asyncio.sleep(0)


@pytest.fixture
async def shaken(tokenizer: Tokenizer) -> Shaken:
    """Two channels with one question of somebody else's in each."""
    bus = Shaken(BusSettings(queue_bound=4, lease_s=3600, ack_wait_s=3600))
    await bus.announce(lease(tokenizer))
    return bus


async def _both(routers: list[Router], request_id: str) -> list[Submitted | BaseException]:
    for router in routers:
        await router._watch.poll()
    work = [router.submit(many(COUNT, request_id)) for router in routers]
    return await asyncio.gather(*work, return_exceptions=True)


async def test_what_one_router_refuses_for_good_another_may_run(shaken: Shaken, start: Start) -> None:
    """The first has room for two of three questions, so it opens the request and gives it up again, unless the other
    one has put them in already."""
    small = await start(shaken, router__overflow_policy="reject", bus__queue_bound=1)
    large = await start(shaken, router__overflow_policy="reject", bus__queue_bound=4)
    given_up = 0
    for trial in range(TRIALS):
        request_id = f"r{trial}"
        refused, taken = await _both([small, large], request_id)
        assert isinstance(refused, Overloaded) or (isinstance(refused, Submitted) and refused.duplicate)
        given_up += isinstance(refused, Overloaded)
        assert isinstance(taken, Submitted)
        answered = [await answer_one(shaken) for _ in range(COUNT)]
        assert sorted(question.slot for question in answered if question) == list(range(COUNT))
        record = await shaken.request(rid_of("", request_id))
        assert record is not None, "questions ran and their request is gone"
        assert record.open_slots() == ()
        assert await taken_from(shaken) == []
    assert 0 < given_up < TRIALS


async def test_what_both_refuse_leaves_nothing(shaken: Shaken, start: Start) -> None:
    routers = [await start(shaken, router__overflow_policy="reject", bus__queue_bound=1) for _ in range(2)]
    for trial in range(TRIALS):
        both = await _both(routers, f"r{trial}")
        assert all(isinstance(one, Overloaded) for one in both)
        assert await shaken.request(rid_of("", f"r{trial}")) is None
    assert await taken_from(shaken) == []


async def test_each_slot_is_cancelled_by_one_call_also_within_one_millisecond(shaken: Shaken, start: Start) -> None:
    routers = [await start(shaken, bus__queue_bound=4, clock=lambda: 1_000_000) for _ in range(2)]
    for trial in range(TRIALS):
        await routers[0].submit(many(COUNT, f"r{trial}", timeout_ms=1_000))
        calls = [router.cancel("", f"r{trial}", with_text=False) for router in (*routers, *routers)]
        ended = [slot for slots in await asyncio.gather(*calls) for slot in slots]
        assert sorted(ended) == list(range(COUNT))
        await taken_from(shaken)


async def test_what_both_take_runs_once(shaken: Shaken, start: Start) -> None:
    routers = [await start(shaken, bus__queue_bound=4) for _ in range(2)]
    for trial in range(TRIALS):
        both = await _both(routers, f"r{trial}")
        assert sorted(one.duplicate for one in both if isinstance(one, Submitted)) == [False, True]
        assert [await answer_one(shaken) is not None for _ in range(COUNT + 1)] == [True] * COUNT + [False]
