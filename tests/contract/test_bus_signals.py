"""Bells and cancel hints: fast, and allowed to get lost."""

from __future__ import annotations

import asyncio
from typing import Any

from bus_labs import Lab
from bus_makers import lease, new_rid, question, questions
from bus_takes import take_one

from kev.bus.messages import BACKGROUND, EXPRESS, CancelHint, Lane


class Ear:
    """Counts calls and lets a test wait for them."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self._news = asyncio.Event()

    def __call__(self, message: object) -> None:
        self.heard.append(message)
        self._news.set()

    async def wait(self) -> None:
        async with asyncio.timeout(10):
            await self._news.wait()
        self._news.clear()


async def test_a_bell_rings_for_the_worker_that_got_something(lab: Lab):
    router, worker = await lab.connect(), await lab.connect()
    mine, other = Ear(), Ear()
    await worker.on_bell("w", mine)
    await worker.on_bell("other", other)
    await router.enqueue(questions(new_rid(), 3, Lane("w", 1)))
    await mine.wait()
    assert mine.heard == [{"w"}]
    assert other.heard == []


async def test_a_bell_says_which_queues_got_something(lab: Lab):
    router, worker = await lab.connect(), await lab.connect()
    ear = Ear()
    await worker.on_bell("w", ear)
    lanes = [Lane("w", 0), Lane("w", 1, long=True), EXPRESS, BACKGROUND, Lane("other", 0)]
    await router.enqueue([question(new_rid(), 0, lane) for lane in lanes])
    await ear.wait()
    while len(ear.heard) < 2:
        await ear.wait()
    assert sorted(ear.heard, key=sorted) == [{"background", "express"}, {"w", "w.long"}]


async def test_a_shared_lane_rings_every_bell(lab: Lab):
    router, worker = await lab.connect(), await lab.connect()
    ears = [Ear(), Ear()]
    for name, ear in zip(("w", "other"), ears, strict=True):
        await worker.on_bell(name, ear)
    await router.enqueue(questions(new_rid(), 1, EXPRESS))
    for ear in ears:
        await ear.wait()


async def test_a_question_given_back_rings_for_all(lab: Lab):
    one, two = await lab.connect(), await lab.connect()
    await one.enqueue(questions(new_rid(), 1, Lane("w", 0)))
    taken = await take_one(one, "w")
    ear = Ear()
    await two.on_bell("other", ear)
    await taken.give_back()
    await ear.wait()
    assert ear.heard == [{"w"}]


async def test_a_worker_that_leaves_rings_for_all(lab: Lab):
    one, two = await lab.connect(), await lab.connect()
    await one.announce(lease("w"))
    ear = Ear()
    await two.on_bell("other", ear)
    await one.withdraw("w")
    await ear.wait()
    assert ear.heard == [frozenset()], "its queue is named by nobody: whoever hears it looks everywhere"


async def test_refused_questions_ring_no_bell(bus):
    rid, lane = new_rid(), Lane("w", 0)
    await bus.enqueue(questions(rid, 8, lane))
    ear, other = Ear(), Ear()
    await bus.on_bell("w", ear)
    await bus.on_bell("other", other)
    await bus.enqueue(questions(rid, 1, lane, first=8))
    await bus.enqueue(questions(rid, 1, Lane("other", 0), first=9))
    await other.wait()
    assert ear.heard == []


async def test_a_closed_bell_is_silent(bus):
    closed, open_ = Ear(), Ear()
    subscription = await bus.on_bell("w", closed)
    await bus.on_bell("w", open_)
    await subscription.close()
    await bus.enqueue(questions(new_rid(), 1, Lane("w", 0)))
    await open_.wait()
    assert closed.heard == []


async def test_cancel_hints_reach_every_worker(lab: Lab):
    router, one, two = await lab.connect(), await lab.connect(), await lab.connect()
    ears = [Ear(), Ear()]
    await one.on_cancel(ears[0])
    await two.on_cancel(ears[1])
    hint = CancelHint(new_rid(), (1, 5))
    await router.hint_cancel(hint)
    for ear in ears:
        await ear.wait()
        assert ear.heard == [hint]


async def test_a_callback_that_fails_harms_nobody(bus):
    def broken(queues: frozenset[str]) -> None:
        raise RuntimeError("no bell")

    loop_errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: loop_errors.append(context))
    ear = Ear()
    await bus.on_bell("w", broken)
    await bus.on_bell("w", ear)
    assert await bus.enqueue(questions(new_rid(), 1, Lane("w", 0))) == frozenset()
    await ear.wait()
    await bus.enqueue(questions(new_rid(), 1, Lane("w", 0)))
    await ear.wait()
