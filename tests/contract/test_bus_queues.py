"""Lanes: bounds, all or nothing, order, no doubles."""

from __future__ import annotations

import pytest
from bus_labs import Lab
from bus_makers import lease, new_rid, now_ms, question, questions
from bus_takes import all_there, drain, nothing_in, take_one, take_some

from kev.bus.messages import BACKGROUND, EXPRESS, OVERFLOW, Lane
from kev.domain.errors import InvalidArgument

LONG = Lane("w", 1, long=True)
W0, W1, OTHER = Lane("w", 0), Lane("w", 1), Lane("other", 0)


async def test_a_question_arrives_as_it_was_sent(bus):
    sent = question(new_rid(), 0, W0, id="mine", warnings=("length_warning: 3 of 5",))
    assert await bus.enqueue([sent]) == frozenset()
    taken = await take_one(bus, "w")
    assert taken.question == sent
    assert taken.question.tokens().tolist() == list(range(12))
    assert (taken.attempt, taken.held) == (1, True)


async def test_which_questions_were_put_in_is_known_also_when_they_have_ended(bus):
    rid = new_rid()
    await bus.enqueue([question(rid, 0, W0), question(rid, 1, OVERFLOW), question(rid, 2, LONG)])
    await drain(bus, "w")
    assert await bus.put_in(rid, range(5)) == {0, 1, 2}
    assert await bus.put_in(rid, [1, 3]) == {1}
    assert await bus.put_in(new_rid(), [0]) == frozenset()
    assert await bus.put_in(rid, []) == frozenset()
    assert await bus.enqueue([question(rid, 3, W0)]) == frozenset(), "asking puts nothing in"
    assert [one.slot for one in await drain(bus, "w")] == [3]
    assert [one.slot for one in await drain(bus, "overflow")] == [1]


async def test_a_question_tells_how_many_wait_behind_it(bus):
    rid = new_rid()
    await bus.enqueue([question(rid, slot, lane) for slot, lane in enumerate((W0, W1, W0, OTHER))])
    await all_there(bus, "w", 3)
    assert [(await take_one(bus, "w")).behind for _ in range(3)] == [2, 1, 0]
    assert (await take_one(bus, "other")).behind == 0


async def test_several_are_taken_in_one_call_in_their_order(bus):
    await bus.enqueue(questions(new_rid(), 5, W0))
    first = await take_some(bus, "w", 3)
    assert [(one.question.slot, one.attempt, one.held) for one in first] == [(slot, 1, True) for slot in range(3)]
    rest = await take_some(bus, "w", 2)
    assert [one.question.slot for one in rest] == [3, 4]
    assert rest[-1].behind == 0
    assert list(await bus.take("w", 3)) == []


async def test_a_call_that_found_too_few_takes_nothing_that_comes_later(bus):
    await bus.enqueue(questions(new_rid(), 1, W0))
    await take_some(bus, "w", 1)
    assert list(await bus.take("w", 4)) == []
    await bus.enqueue(questions(new_rid(), 1, W0))
    assert (await take_one(bus, "w")).attempt == 1


async def test_each_of_several_is_answered_for_on_its_own(bus):
    await bus.enqueue(questions(new_rid(), 3, W0))
    one, two, three = await take_some(bus, "w", 3)
    await one.ack()
    await two.give_back()
    assert await bus.depths() == {W0: 2}
    again = await take_one(bus, "w")
    assert (again.question.slot, again.attempt) == (1, 2)
    assert await nothing_in(bus, "w")
    assert three.held


async def test_an_empty_source_gives_none(bus):
    assert await nothing_in(bus, "w")
    assert await nothing_in(bus, "express")


async def test_enqueueing_nothing_is_fine(bus):
    assert await bus.enqueue([]) == frozenset()


async def test_a_source_gives_all_its_lanes_in_order_of_arrival(bus):
    rid = new_rid()
    for slot, lane in enumerate((W0, W1, OTHER, W1, W0)):
        await bus.enqueue([question(rid, slot, lane)])
    assert [one.slot for one in await drain(bus, "w")] == [0, 1, 3, 4]
    assert [one.slot for one in await drain(bus, "other")] == [2]


@pytest.mark.parametrize("lane", [EXPRESS, OVERFLOW, BACKGROUND], ids=str)
async def test_shared_lanes(bus, lane):
    rid = new_rid()
    await bus.enqueue(questions(rid, 3, lane))
    assert await bus.depths() == {lane: 3}
    assert [one.slot for one in await drain(bus, lane.source)] == [0, 1, 2]


@pytest.mark.parametrize("lane", [EXPRESS, OVERFLOW, BACKGROUND], ids=str)
async def test_a_shared_lane_has_a_bound_of_its_own(bus, lane):
    rid = new_rid()
    sizes = [1, 9, 1, 5, 7]
    for size, first in zip(sizes, (0, 1, 10, 11, 16), strict=True):
        assert await bus.enqueue(questions(rid, size, lane, first)) == frozenset()
    assert await bus.enqueue(questions(rid, 2, lane, 23)) == frozenset({lane})
    assert await bus.enqueue(questions(rid, 1, lane, 23)) == frozenset()
    assert await bus.depths() == {lane: 24}
    assert await bus.enqueue(questions(rid, 1, lane, 24)) == frozenset({lane})
    assert [one.slot for one in await drain(bus, lane.source)] == list(range(24))


async def test_a_shared_lane_takes_a_set_larger_than_a_channels_queue(bus):
    assert await bus.enqueue(questions(new_rid(), 24, BACKGROUND)) == frozenset()
    assert await bus.enqueue(questions(new_rid(), 25, EXPRESS)) == frozenset({EXPRESS})
    assert await bus.depths() == {BACKGROUND: 24}


async def test_room_that_became_free_in_a_shared_lane_is_used(bus):
    """Whatever the order in which questions leave."""
    rid = new_rid()
    await bus.enqueue(questions(rid, 24, OVERFLOW))
    taken = [await take_one(bus, "overflow") for _ in range(24)]
    for one in taken[::3]:
        await one.ack()
    assert await bus.enqueue(questions(rid, 8, OVERFLOW, first=100)) == frozenset()
    assert await bus.depths() == {OVERFLOW: 24}


async def test_a_full_lane_refuses_and_is_named(bus):
    rid = new_rid()
    assert await bus.enqueue(questions(rid, 8, W0)) == frozenset()
    assert await bus.enqueue(questions(rid, 1, W0, first=8)) == frozenset({W0})
    assert await bus.depths() == {W0: 8}


async def test_a_set_goes_in_whole_or_not_at_all(bus):
    rid = new_rid()
    await bus.enqueue(questions(rid, 7, W0))
    mixed = [question(rid, 10, W1), question(rid, 11, W0), question(rid, 12, OTHER), question(rid, 13, W0)]
    assert await bus.enqueue(mixed) == frozenset({W0})
    assert await bus.depths() == {W0: 7}
    assert await bus.enqueue([mixed[0], mixed[1], mixed[2]]) == frozenset()
    assert await bus.depths() == {W0: 8, W1: 1, OTHER: 1}


async def test_a_set_larger_than_the_bound_never_fits(bus):
    assert await bus.enqueue(questions(new_rid(), 9, W0)) == frozenset({W0})
    assert await bus.depths() == {}


async def test_taken_questions_count_against_the_bound_until_acknowledged(bus):
    rid = new_rid()
    await bus.enqueue(questions(rid, 8, W0))
    taken = await take_one(bus, "w")
    more = questions(rid, 1, W0, first=8)
    assert await bus.enqueue(more) == frozenset({W0})
    await taken.ack()
    assert await bus.depths() == {W0: 7}
    assert await bus.enqueue(more) == frozenset()


async def test_a_question_is_put_in_once(bus):
    rid = new_rid()
    batch = questions(rid, 3, W0)
    for _ in range(3):
        assert await bus.enqueue(batch) == frozenset()
    assert await bus.enqueue(batch[:1]) == frozenset()
    assert await bus.depths() == {W0: 3}


async def test_a_question_twice_in_one_set_is_put_in_once(bus):
    one = question(new_rid(), 0, W0)
    assert await bus.enqueue([one, one]) == frozenset()
    assert await bus.depths() == {W0: 1}


async def test_a_finished_question_is_not_put_in_again(bus):
    batch = questions(new_rid(), 2, W0)
    await bus.enqueue(batch)
    await drain(bus, "w")
    assert await bus.enqueue(batch) == frozenset()
    assert await bus.enqueue(batch[:1]) == frozenset()
    assert await bus.depths() == {}


async def test_only_what_is_missing_is_put_in(bus):
    batch = questions(new_rid(), 6, W0)
    await bus.enqueue([batch[1], batch[4]])
    assert await bus.enqueue(batch) == frozenset()
    assert sorted(one.slot for one in await drain(bus, "w")) == [0, 1, 2, 3, 4, 5]


async def test_what_is_missing_goes_in_whole_or_not_at_all(bus):
    rid = new_rid()
    await bus.enqueue(questions(rid, 6, W0))
    assert await bus.enqueue(questions(rid, 9, W0)) == frozenset({W0})
    assert await bus.depths() == {W0: 6}
    assert await bus.enqueue(questions(rid, 8, W0)) == frozenset()
    assert await bus.depths() == {W0: 8}


async def test_a_refused_question_may_try_again(bus):
    rid = new_rid()
    await bus.enqueue(questions(rid, 8, W0))
    late = questions(rid, 2, W0, first=8)
    assert await bus.enqueue(late) == frozenset({W0})
    await drain(bus, "w")
    assert await bus.enqueue(late) == frozenset()
    assert [one.slot for one in await drain(bus, "w")] == [8, 9]


async def test_the_same_slot_of_two_requests_are_two_questions(bus):
    await bus.enqueue([question(new_rid(), 0, W0), question(new_rid(), 0, W0)])
    assert await bus.depths() == {W0: 2}


async def test_a_thousand_questions_in_one_call(lab: Lab):
    bus = await lab.connect(queue_bound=1000)
    rid = new_rid()
    batch = [question(rid, slot, Lane("w", slot % 4)) for slot in range(1000)]
    assert await bus.enqueue(batch) == frozenset()
    assert await bus.depths() == {Lane("w", channel): 250 for channel in range(4)}
    assert [one.slot for one in await drain(bus, "w")] == list(range(1000))


async def test_more_than_a_thousand_are_an_error(bus):
    with pytest.raises(InvalidArgument, match="at most 1000"):
        await bus.enqueue(questions(new_rid(), 1001, W0))


@pytest.mark.parametrize("lane", [Lane("w"), Lane("express", 1), Lane("a.b", 0), Lane(">", 0), Lane("", 0)], ids=str)
async def test_a_lane_that_cannot_be_is_an_error(bus, lane):
    with pytest.raises(InvalidArgument):
        await bus.enqueue([question(new_rid(), 0, lane)])
    assert await bus.depths() == {}


@pytest.mark.parametrize("source", ["a.b", "*", ">", "", "Upper", ".long", "w.long.long", "long.w"])
async def test_a_source_that_cannot_be_is_an_error(bus, source):
    with pytest.raises(InvalidArgument):
        await take_one(bus, source)


async def test_a_question_leaves_its_queue_after_deadline_and_grace(lab: Lab):
    bus = await lab.connect(question_grace_s=0.5)
    rid = new_rid()
    await bus.enqueue([question(rid, 0, W0, deadline_ms=now_ms() + 500), question(rid, 1, W0)])
    await lab.pass_time(3.0)
    assert await bus.depths() == {W0: 1}
    assert [one.slot for one in await drain(bus, "w")] == [1]


async def test_the_age_of_the_oldest_question_is_known(lab: Lab, bus):
    assert await bus.depths() == {}
    assert bus.oldest_s == 0
    await bus.enqueue(questions(new_rid(), 1, Lane("w", 0)))
    await lab.pass_time(0.5)
    await bus.enqueue(questions(new_rid(), 1, Lane("w", 1)))
    await bus.depths()
    assert 0.4 < bus.oldest_s < 30
    assert len(await drain(bus, "w")) == 2
    await bus.depths()
    assert bus.oldest_s == 0


async def test_long_questions_wait_in_a_queue_of_their_own(bus):
    rid = new_rid()
    await bus.enqueue([question(rid, 0, LONG), question(rid, 1, W1), question(rid, 2, LONG), question(rid, 3, W0)])
    assert await bus.depths() == {LONG: 2, W1: 1, W0: 1}
    assert [one.slot for one in await drain(bus, "w")] == [1, 3]
    assert await bus.depths() == {LONG: 2}
    taken = await take_one(bus, "w.long")
    assert (taken.question.slot, taken.question.lane) == (0, LONG)
    await taken.give_back()
    assert [one.slot for one in await drain(bus, "w.long")] == [0, 2]
    assert await bus.depths() == {}


@pytest.mark.parametrize("name", ["express", "overflow", "background"])
async def test_a_shared_lane_has_a_long_one_beside_it(bus, name):
    rid, lane = new_rid(), Lane(name, long=True)
    await bus.enqueue(questions(rid, 20, lane))
    await bus.enqueue([question(rid, 20, Lane(name))])
    assert await bus.depths() == {lane: 20, Lane(name): 1}
    assert await bus.enqueue(questions(rid, 5, lane, first=30)) == frozenset({lane})
    assert [one.slot for one in await drain(bus, f"{name}.long")] == list(range(20))
    assert [one.slot for one in await drain(bus, name)] == [20]


async def test_a_full_long_queue_leaves_room_in_the_other(bus):
    rid = new_rid()
    assert await bus.enqueue(questions(rid, 8, LONG)) == frozenset()
    assert await bus.enqueue([question(rid, 8, LONG), question(rid, 9, W1)]) == frozenset({LONG})
    assert await bus.enqueue([question(rid, 9, W1)]) == frozenset()
    assert await bus.depths() == {LONG: 8, W1: 1}


async def test_workers_and_lanes_whose_names_are_alike_do_not_mix(bus):
    """A worker may be called long, or long-w."""
    rid, lanes = new_rid(), [Lane("long", 0), Lane("long", 0, long=True), Lane("long-w", 0), LONG]
    await bus.enqueue([question(rid, slot, lane) for slot, lane in enumerate(lanes)])
    assert await bus.depths() == dict.fromkeys(lanes, 1)
    for slot, lane in enumerate(lanes):
        assert [one.slot for one in await drain(bus, lane.queue)] == [slot]


async def test_the_long_queue_of_a_worker_that_is_gone_can_be_drained(lab: Lab):
    router, dead, heir = [await lab.connect() for _ in range(3)]
    await dead.announce(lease("w", channels=2, long_channels=1))
    rid = new_rid()
    await router.enqueue(questions(rid, 3, LONG))
    await take_one(dead, "w.long")
    await dead.withdraw("w")
    assert [one.slot for one in await drain(heir, "w.long", held=1)] == [1, 2]
    await lab.pass_time(1.0)
    assert [one.slot for one in await drain(heir, "w.long")] == [0]
