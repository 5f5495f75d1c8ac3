"""A question in a worker's hands: acknowledgement, redelivery, orphans."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "unit" / "kev"))
from bus_labs import SHORT, Lab
from bus_makers import new_rid, question, questions
from bus_takes import nothing_in, take_one
from trace_lab import recorded

from kev.bus.messages import OVERFLOW, Lane
from kev.telemetry import traces

W0 = Lane("w", 0)
ACK_WAIT = SHORT["ack_wait_s"]


async def test_an_acknowledged_question_never_comes_back(lab: Lab, bus):
    await bus.enqueue(questions(new_rid(), 1, W0))
    taken = await take_one(bus, "w")
    await taken.ack()
    assert not taken.held
    await lab.pass_time(ACK_WAIT * 1.5)
    assert await nothing_in(bus, "w")
    assert await bus.depths() == {}


async def test_a_taken_question_is_nobody_elses(lab: Lab):
    one, two = await lab.connect(), await lab.connect()
    await one.enqueue(questions(new_rid(), 1, W0))
    await take_one(one, "w")
    assert await nothing_in(two, "w")


async def test_workers_that_take_at_once_never_share_a_question(lab: Lab):
    buses = [await lab.connect() for _ in range(3)]
    await buses[0].enqueue(questions(new_rid(), 8, OVERFLOW))
    slots: list[int] = []
    async with asyncio.timeout(10):
        while len(slots) < 8:
            for some in await asyncio.gather(*(b.take("overflow", 1) for b in buses * 4)):
                slots += [one.question.slot for one in some]
    assert sorted(slots) == list(range(8))
    assert await nothing_in(buses[0], "overflow")


async def test_a_question_given_back_comes_at_once_and_counts_the_attempt(bus):
    rid = new_rid()
    await bus.enqueue(questions(rid, 2, W0))
    taken = await take_one(bus, "w")
    await taken.give_back()
    assert not taken.held
    again = [await take_one(bus, "w"), await take_one(bus, "w")]
    assert sorted((one.question.slot, one.attempt) for one in again) == [(0, 2), (1, 1)]


async def test_a_question_comes_back_when_its_holder_shows_no_progress(lab: Lab, bus):
    await bus.enqueue(questions(new_rid(), 1, W0))
    first = await take_one(bus, "w")
    assert await nothing_in(bus, "w")
    await lab.pass_time(ACK_WAIT * 1.5)
    assert not first.held
    second = await take_one(bus, "w")
    assert (second.question, second.attempt, second.held) == (first.question, 2, True)


async def test_progress_restarts_the_ack_wait(lab: Lab, bus):
    await bus.enqueue(questions(new_rid(), 1, W0))
    taken = await take_one(bus, "w")
    for _ in range(4):
        await lab.pass_time(ACK_WAIT * 0.4)
        await taken.progress()
    assert taken.held
    assert await nothing_in(bus, "w")


async def test_a_stale_holder_changes_nothing(lab: Lab, bus):
    await bus.enqueue(questions(new_rid(), 1, W0))
    stale = await take_one(bus, "w")
    await lab.pass_time(ACK_WAIT * 1.2)
    current = await take_one(bus, "w")
    await stale.ack()
    await stale.give_back()
    assert await nothing_in(bus, "w")
    await lab.pass_time(ACK_WAIT * 0.6)
    await stale.progress()
    await lab.pass_time(ACK_WAIT * 0.6)
    assert await bus.depths() == {W0: 1}
    third = await take_one(bus, "w")
    assert (third.question, third.attempt, current.attempt) == (current.question, 3, 2)


async def test_answering_twice_does_nothing_more(bus):
    await bus.enqueue(questions(new_rid(), 1, W0))
    taken = await take_one(bus, "w")
    await taken.give_back()
    holder = await take_one(bus, "w")
    await taken.ack()
    await taken.give_back()
    await taken.progress()
    assert await bus.depths() == {W0: 1}
    assert await nothing_in(bus, "w")
    await holder.ack()
    await holder.give_back()
    assert await bus.depths() == {}


async def test_a_dead_workers_queue_is_served_by_any_other(lab: Lab):
    """Also when the dead worker never took anything, so that nobody had made its queue ready."""
    router, worker = await lab.connect(), await lab.connect()
    rid = new_rid()
    await router.enqueue([question(rid, 0, Lane("never-seen", 0)), question(rid, 1, Lane("never-seen", 5))])
    taken = [await take_one(worker, "never-seen"), await take_one(worker, "never-seen")]
    assert [one.question.slot for one in taken] == [0, 1]
    for one in taken:
        await one.ack()
    assert await router.depths() == {}


async def test_what_a_dead_worker_held_comes_to_another(lab: Lab):
    dead, living = await lab.connect(), await lab.connect()
    await dead.enqueue(questions(new_rid(), 1, W0))
    await take_one(dead, "w")
    await lab.pass_time(ACK_WAIT * 1.5)
    adopted = await take_one(living, "w")
    assert adopted.attempt == 2


async def test_a_question_of_seconds_is_kept_alive_by_its_own_holder_only(lab: Lab, bus):
    rid = new_rid()
    await bus.enqueue(questions(rid, 2, W0))
    kept, lost = await take_one(bus, "w"), await take_one(bus, "w")
    for _ in range(4):
        await lab.pass_time(ACK_WAIT * 0.4)
        await kept.progress()
    assert (kept.held, lost.held) == (True, False)
    assert (await take_one(bus, "w")).question.slot == lost.question.slot


async def test_the_span_that_put_a_question_in_goes_along_beside_it(lab: Lab):
    sender, worker = await lab.connect(), await lab.connect()
    with recorded(), traces.span("place") as span:
        await sender.enqueue(questions(new_rid(), 3, W0))
        name = traces.of(span)
    await sender.enqueue(questions(new_rid(), 1, W0))
    taken = [await take_one(worker, "w") for _ in range(4)]
    assert [one.traceparent for one in taken] == [name] * 3 + [""]
    await taken[0].give_back()
    again = await take_one(worker, "w")
    assert (again.attempt, again.traceparent) == (2, name)
