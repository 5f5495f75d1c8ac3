"""What a client of the router relies on: all in or nothing in, nothing twice, every slot with an end."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from router_lab import answer_one, batch_of, lease, many, taken_from, until

from kev.bus.memory import MemoryBus
from kev.bus.messages import Lane, Manifest, Piece, QueuedQuestion
from kev.bus.settings import BusSettings
from kev.domain.errors import AlreadyUsed, BusUnavailable, InvalidArgument, NotFound, NotServed, Overloaded
from kev.domain.ids import rid_of
from kev.domain.outcome import FinishReason, Outcome, Status
from kev.domain.question import Batch, Message, Priority, Question, Sampling, Strategy
from kev.domain.result import Submitted
from kev.tokens.tokenizer import Tokenizer
from router_svc import metrics
from router_svc.router import Router, wall_ms

Start = Callable[..., Any]
DEADLINE_S = 30
ROOM = 6


async def _outcomes(bus: MemoryBus, request_id: str = "r1") -> dict[int, Outcome]:
    record = await bus.request(rid_of("", request_id))
    assert record is not None
    return record.outcomes


def _placed() -> float:
    """Questions put into queues, as the metrics say."""
    samples = (sample for metric in metrics.PLACED.collect() for sample in metric.samples)
    return sum(sample.value for sample in samples if sample.name.endswith("_total"))


async def test_a_batch_goes_in_with_all_that_a_worker_needs(bus: MemoryBus, start: Start, tokenizer: Tokenizer) -> None:
    router = await start(bus, core__system_prompt="Be brief.")
    batch = batch_of("Why?", "How?", id="mine", max_tokens=7, timeout_ms=5000, sampling=Sampling(0.5, stop=("x",)))
    assert await router.submit(batch) == Submitted("r1", 2)
    questions = {question.slot: question for question in await taken_from(bus)}
    assert sorted(questions) == [0, 1]
    one = questions[0]
    assert tokenizer.decode(one.tokens().tolist()).count("Be brief.") == 1
    assert "Why?" in tokenizer.decode(one.tokens().tolist()[one.prefix_tokens :])
    assert one.prompt[: 4 * one.prefix_tokens] == questions[1].prompt[: 4 * one.prefix_tokens]
    assert (one.id, one.max_tokens, one.sampling.stop, one.branch) == ("mine", 7, ("x",), "home")
    assert one.deadline_ms - one.accepted_ms == 5000
    assert one.tokenizer_digest == tokenizer.digest
    assert one.seed != questions[1].seed
    record = await bus.request(one.rid)
    assert record is not None
    assert [plan.deadline_ms for plan in record.manifest.slots] == [one.deadline_ms] * 2


async def test_bad_questions_are_refused_and_the_good_ones_run(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    long = Question(text="word " * 20_000)
    batch = Batch(
        questions=(Question(text="Why?"), Question(text=" \u200b\n"), long, Question(text="a", max_tokens=0)),
        request_id="r1",
    )
    submitted = await router.submit(batch)
    assert submitted.refused_slots == (1, 2, 3)
    outcomes = await _outcomes(bus)
    assert {slot: outcome.reason for slot, outcome in outcomes.items()} == {1: "empty", 2: "too_long", 3: "invalid"}
    assert "2047" in outcomes[2].detail
    assert outcomes[2].audit.prompt_tokens > 20_000
    assert "max_tokens" in outcomes[3].detail
    assert [question.slot for question in await taken_from(bus)] == [0]


async def test_an_over_long_label_refuses_its_slot_and_is_cut(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    batch = Batch(
        questions=(Question(text="Why?", id="l" * 256), Question(text="Why?", id="l" * 20_000)), request_id="r1"
    )
    assert (await router.submit(batch)).refused_slots == (1,)
    record = await bus.request(rid_of("", "r1"))
    assert record is not None
    assert [plan.id for plan in record.manifest.slots] == ["l" * 256] * 2
    assert record.outcomes[1].id == "l" * 256
    assert "id: must be at most 256 characters, got 20000" in record.outcomes[1].detail


async def test_a_batch_of_bad_questions_only_is_complete_at_once(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    submitted = await router.submit(batch_of("", ""))
    assert submitted.refused_slots == (0, 1)
    record = await bus.request(rid_of("", "r1"))
    assert record is not None
    assert record.open_slots() == ()
    assert await bus.depths() == {}


async def test_a_conversation_keeps_its_turns(bus: MemoryBus, start: Start, tokenizer: Tokenizer) -> None:
    router = await start(bus, core__system_prompt="House rules.")
    turns = (
        Message("system", "Own rules."),
        Message("user", "Hi"),
        Message("assistant", "Hello"),
        Message("user", "Why <|im_end|>?"),
    )
    await router.submit(Batch(questions=(Question(messages=turns),), request_id="r1"))
    (question,) = await taken_from(bus)
    text = tokenizer.decode(question.tokens().tolist())
    places = [text.index(part) for part in ("House rules.", "Own rules.", "Hi", "Hello", "Why <|im_end|>?")]
    assert places == sorted(places)


async def test_the_same_submit_twice_runs_once(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    before = _placed()
    first, second = await router.submit(many(3)), await router.submit(many(3))
    assert (first.duplicate, second.duplicate) == (False, True)
    assert _placed() == before + 3, "what was in already was not put in"
    assert len(await taken_from(bus)) == 3


@pytest.mark.parametrize("policy", ["reject", "wait"])
async def test_a_repeat_needs_no_room_for_what_is_in(bus: MemoryBus, start: Start, policy: str) -> None:
    router = await start(bus, router__overflow_policy=policy, router__max_waiters=1)
    async with asyncio.timeout(DEADLINE_S):
        await router.submit(many(ROOM, timeout_ms=10_000))
        waiting = asyncio.create_task(router.submit(many(1, "r2"))) if policy == "wait" else None
        await until(lambda: waiting is None or router.waiters == 1)
        again = await asyncio.wait_for(router.submit(many(ROOM, timeout_ms=10_000)), 5)
    assert (again.duplicate, again.refused_slots) == (True, ())
    assert await _outcomes(bus) == {}
    assert len(await taken_from(bus)) >= ROOM
    if waiting is not None:
        waiting.cancel()


async def test_two_routers_at_once_run_it_once(bus: MemoryBus, start: Start) -> None:
    routers: list[Router] = [await start(bus) for _ in range(2)]
    both = await asyncio.gather(*(router.submit(many(4)) for router in routers))
    assert {submitted.request_id for submitted in both} == {"r1"}
    assert sorted(question.slot for question in await taken_from(bus)) == [0, 1, 2, 3]


async def test_another_batch_under_a_used_id_is_refused(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    await router.submit(many(2))
    with pytest.raises(AlreadyUsed):
        await router.submit(many(3))
    assert len(await taken_from(bus)) == 2


async def test_a_retry_repairs_a_router_that_died_after_the_manifest(bus: MemoryBus, start: Start) -> None:
    class Dying(MemoryBus):
        async def enqueue(self, questions: Any) -> Any:
            raise BusUnavailable("gone")

    dying = Dying(BusSettings(queue_bound=3))
    dying.__dict__.update(bus.__dict__)  # the same broker, seen by a router that dies
    first = await start(dying)
    with pytest.raises(BusUnavailable):
        await first.submit(batch_of("Why?", ""))
    record = await bus.request(rid_of("", "r1"))
    assert record is not None
    assert record.open_slots() == (0, 1)
    submitted = await (await start(bus)).submit(batch_of("Why?", ""))
    assert submitted.duplicate
    assert submitted.refused_slots == (1,)
    (question,) = await taken_from(bus)
    assert question.deadline_ms == record.manifest.slots[0].deadline_ms


async def test_a_repaired_request_repeats_its_seeds(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    await router.submit(many(2))
    before = {question.slot: question.seed for question in await taken_from(bus)}
    other = MemoryBus(BusSettings(queue_bound=3))
    other.__dict__.update({**bus.__dict__, "_queues": other._queues})  # the queues were lost, the manifest was not
    await (await start(other)).submit(many(2))
    assert {question.slot: question.seed for question in await taken_from(other)} == before


async def test_reject_leaves_nothing_behind_and_says_when_to_come_again(bus: MemoryBus, start: Start) -> None:
    router = await start(bus, router__overflow_policy="reject")
    await router.submit(many(ROOM - 1))
    with pytest.raises(Overloaded) as caught:
        await router.submit(many(2, "r2"))
    assert caught.value.retry_after_ms > 0
    assert await bus.request(rid_of("", "r2")) is None
    assert sum((await bus.depths()).values()) == ROOM - 1
    assert await router.submit(many(1, "r2")) == Submitted("r2", 1)


async def test_reject_names_the_places_to_a_batch_that_is_larger_than_all_queues(bus: MemoryBus, start: Start) -> None:
    router = await start(bus, router__overflow_policy="reject")
    with pytest.raises(Overloaded, match=f"no room for {ROOM + 1} more .* all queues together have {ROOM} places"):
        await router.submit(many(ROOM + 1))
    assert await router.submit(many(ROOM)) == Submitted("r1", ROOM)


async def test_a_full_queue_that_the_router_did_not_know_of_is_walked_around(bus: MemoryBus, start: Start) -> None:
    router = await start(bus, router__overflow_policy="reject")
    blind = await start(bus, router__overflow_policy="reject")
    await router.submit(many(ROOM - 2, "r1"))
    await blind.submit(many(2, "r2"))
    assert sum((await bus.depths()).values()) == ROOM


async def test_wait_goes_in_part_by_part_first_in_first_out(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    async with asyncio.timeout(DEADLINE_S):
        big = asyncio.create_task(router.submit(many(ROOM + 3, "big")))
        await until(lambda: router.waiters == 1)
        small = asyncio.create_task(router.submit(many(1, "small")))
        order = []
        while not small.done():
            some = await bus.take("w1", 1)
            if not some:
                await asyncio.sleep(0.001)
                continue
            order.append(some[0].question.request_id)
            await some[0].ack()
        assert (await big).refused_slots == ()
        order += [question.request_id for question in await taken_from(bus)]
    assert order == ["big"] * (ROOM + 3) + ["small"]
    assert router.waiters == 0


async def test_what_never_found_room_ends_as_refused_overloaded(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    async with asyncio.timeout(DEADLINE_S):
        submitted = await router.submit(many(ROOM + 2, timeout_ms=300))
    assert len(submitted.refused_slots) == 2
    outcomes = await _outcomes(bus)
    assert {outcome.reason for outcome in outcomes.values()} == {"overloaded"}
    assert tuple(sorted(outcomes)) == submitted.refused_slots
    assert router.waiters == 0


async def test_the_line_is_bounded(bus: MemoryBus, start: Start) -> None:
    router = await start(bus, router__max_waiters=2)
    await router.submit(many(ROOM, "full"))
    waiting = [asyncio.create_task(router.submit(many(1, f"w{number}"))) for number in range(2)]
    async with asyncio.timeout(DEADLINE_S):
        await until(lambda: router.waiters == 2)
        with pytest.raises(Overloaded, match="2 submits wait"):
            await router.submit(many(1, "late"))
    assert await bus.request(rid_of("", "late")) is None
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert router.waiters == 0


async def test_a_thousand_submits_under_overload_leave_no_waiter(bus: MemoryBus, start: Start) -> None:
    router = await start(bus, router__max_waiters=50)
    async with asyncio.timeout(DEADLINE_S * 2):
        submits = [
            asyncio.create_task(router.submit(many(1, f"r{number}", timeout_ms=4000 + number % 100)))
            for number in range(1000)
        ]
        for number, task in enumerate(submits):
            if number % 7 == 0:
                task.cancel()
        results = await asyncio.gather(*submits, return_exceptions=True)
    assert router.waiters == 0
    accepted = [result for result in results if isinstance(result, Submitted) and not result.refused_slots]
    assert len(accepted) >= ROOM - 1
    assert {type(result) for result in results} <= {Submitted, Overloaded, asyncio.CancelledError}


async def test_without_workers_wait_waits_for_them(start: Start, tokenizer: Tokenizer) -> None:
    bus = MemoryBus(BusSettings(lease_s=3600))
    router = await start(bus)
    async with asyncio.timeout(DEADLINE_S):
        submit = asyncio.create_task(router.submit(many(2)))
        await until(lambda: router.waiters == 1)
        await bus.announce(lease(tokenizer))
        assert (await submit).refused_slots == ()
    assert len(await taken_from(bus)) == 2


async def test_without_workers_reject_says_so(start: Start) -> None:
    router = await start(MemoryBus(), router__overflow_policy="reject")
    with pytest.raises(Overloaded, match="no worker is ready"):
        await router.submit(many(1))


@pytest.mark.parametrize(
    "change", [{"tokenizer_digest": "other"}, {"state": "draining"}, {"max_context": 100}, {"levels": ("loose",)}]
)
async def test_a_worker_that_does_not_fit_gets_nothing(
    start: Start, tokenizer: Tokenizer, bus: MemoryBus, change: dict[str, Any]
) -> None:
    await bus.announce(lease(tokenizer, "other", 8, **change))
    router = await start(bus)
    await router.submit(many(ROOM))
    assert {lane.source for lane in await bus.depths()} == {"w1"}


async def test_bands_wait_in_the_shared_lanes(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    await router.submit(many(1, "e", priority=Priority.EXPRESS))
    await router.submit(many(1, "b", priority=Priority.BACKGROUND))
    assert await bus.depths() == {Lane("express"): 1, Lane("background"): 1}


async def test_cancel_ends_the_open_slots_with_their_text_so_far(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    hints: list[Any] = []
    await bus.on_cancel(hints.append)
    await router.submit(many(3))
    await answer_one(bus)
    (answered,) = await _outcomes(bus)
    ended = await router.cancel("", "r1")
    assert set(ended) == {0, 1, 2} - {answered}
    assert await router.cancel("", "r1") == ()
    outcomes = await _outcomes(bus)
    assert outcomes[answered].status is Status.ANSWERED
    assert {outcomes[slot].status for slot in ended} == {Status.CANCELLED}
    await asyncio.sleep(0)
    assert [hint.slots for hint in hints] == [ended]


async def test_a_cancelled_slot_says_how_far_it_was_and_where(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    await router.submit(many(2))
    await bus.on_catch_up(lambda rid: [Piece(1, 2, "w-1/13", 0, "so far")])
    await router.cancel("", "r1")
    never, ran = (outcome for _, outcome in sorted((await _outcomes(bus)).items()))
    assert (ran.text, ran.text_length, ran.attempt) == ("so far", 6, 2)
    assert (ran.audit.channel, ran.audit.worker_id, ran.audit.channel_id) == ("w-1/13", "w-1", 13)
    assert (never.text, never.attempt, never.audit.channel, never.audit.channel_id) == ("", 0, "", -1)


async def test_cancel_of_one_slot_and_of_what_is_not_there(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    await router.submit(many(3))
    assert await router.cancel("", "r1", [1]) == (1,)
    with pytest.raises(InvalidArgument, match="slots"):
        await router.cancel("", "r1", [3])
    with pytest.raises(NotFound):
        await router.cancel("", "r9")
    with pytest.raises(NotFound):
        await router.cancel("somebody-else", "r1")


async def test_no_deadline_is_later_than_the_callers(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    latest = wall_ms() + 1234
    await router.submit(many(2), latest_ms=latest)
    assert {question.deadline_ms for question in await taken_from(bus)} == {latest}


async def test_a_deadline_that_passes_before_anybody_looks_for_room_is_a_timeout(bus: MemoryBus, start: Start) -> None:
    """Nothing lacked room, so nothing was refused."""
    ticks = itertools.count(wall_ms(), 100)
    router = await start(bus, clock=lambda: next(ticks))
    batch = Batch(questions=(Question(text="Why?"), Question(text="How?", timeout_ms=1)), request_id="r1")
    assert await router.submit(batch) == Submitted("r1", 2)
    outcomes = await _outcomes(bus)
    assert {slot: outcome.status for slot, outcome in outcomes.items()} == {1: Status.TIMED_OUT}
    assert outcomes[1].finish_reason is FinishReason.TIMEOUT


async def test_a_questions_time_begins_when_its_batch_is_prepared(bus: MemoryBus, start: Start) -> None:
    """A neighbour that takes long to tokenise costs it nothing."""
    router = await start(bus)
    prepare = router._preparer.prepare_all
    ended: list[int] = []

    async def slowly(questions: Sequence[Question], *more: Any) -> Any:
        ready = await prepare(questions, *more)
        await asyncio.sleep(0.02)
        ended.append(wall_ms())
        return ready

    router._preparer.prepare_all = slowly
    await router.submit(Batch(questions=(Question(text="Why?", timeout_ms=5000),), request_id="r1"))
    question = (await taken_from(bus))[0]
    assert question.deadline_ms - question.accepted_ms == 5000
    assert question.accepted_ms >= ended[0]


async def test_a_request_without_an_id_gets_one(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    one, two = await router.submit(many(1, "")), await router.submit(many(1, ""))
    assert one.request_id != two.request_id
    assert isinstance((await bus.request(rid_of("", one.request_id))).manifest, Manifest)  # type: ignore[union-attr]


async def test_equal_questions_share_a_home_and_a_key_overrides_the_text(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    await router.submit(batch_of("Why?", "why ?", "How far?", request_id="t"))
    await router.submit(batch_of("One", "Two", request_id="k", routing_key="same"))
    buckets = {(question.request_id, question.slot): question.bucket for question in await taken_from(bus)}
    assert buckets["t", 0] != buckets["t", 2]
    assert buckets["k", 0] == buckets["k", 1]


async def test_a_batch_chooses_its_strategy_and_its_questions_say_so(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    await router.submit(msgspec.structs.replace(many(2), strategy=Strategy.ROUND_ROBIN))
    await router.submit(many(1, request_id="r2"))
    found = {(question.request_id, question.strategy, question.bucket >= 0) for question in await taken_from(bus)}
    assert found == {("r1", "round_robin", False), ("r2", "consistent_hash", True)}
    with pytest.raises(NotServed, match=r"batch\.strategy"):
        await router.submit(msgspec.structs.replace(many(1, "r3"), strategy=Strategy.LENGTH_AWARE))
    with pytest.raises(AlreadyUsed):
        await router.submit(many(2))


async def test_queue_puts_what_has_no_room_into_the_overflow_lane(bus: MemoryBus, start: Start) -> None:
    router = await start(bus, router__overflow_policy="queue")
    assert (await router.submit(many(ROOM + 2))).refused_slots == ()
    overflowed = await taken_from(bus, "overflow")
    assert [question.branch for question in overflowed] == ["overflow"] * 2


async def test_nobody_waits_behind_the_background(start: Start, tokenizer: Tokenizer) -> None:
    bus = MemoryBus(BusSettings(queue_bound=3, shared_lane_bound=3, lease_s=3600))
    await bus.announce(lease(tokenizer))
    router = await start(bus, bus__shared_lane_bound=3)
    async with asyncio.timeout(DEADLINE_S):
        slow = asyncio.create_task(router.submit(many(5, "slow", priority=Priority.BACKGROUND)))
        await until(lambda: router.waiters == 1)
        assert (await router.submit(many(2, "quick"))).refused_slots == ()
        assert not slow.done()
        while not slow.done():
            await answer_one(bus, "background")
            await asyncio.sleep(0.001)
    assert router.waiters == 0


class Shaky(MemoryBus):
    """A broker that can be away."""

    away, missed = False, 0
    error: Exception = BusUnavailable("away")

    async def enqueue(self, questions: Sequence[QueuedQuestion]) -> frozenset[Lane]:
        if self.away:
            self.missed += 1
            raise self.error
        return await super().enqueue(questions)


@pytest.mark.parametrize("error", [BusUnavailable("away"), Overloaded("its disk is full")], ids=repr)
async def test_who_waits_for_room_also_waits_for_the_broker(
    start: Start, tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    bus = Shaky(BusSettings(queue_bound=3, lease_s=3600))
    bus.error = error
    await bus.announce(lease(tokenizer))
    router = await start(bus)
    await router.submit(many(ROOM, "full"))
    async with asyncio.timeout(DEADLINE_S):
        submit = asyncio.create_task(router.submit(many(2)))
        await until(lambda: router.waiters == 1)
        await answer_one(bus)
        await until(lambda: router._placer._lines[False, False].questions == 1)
        bus.away = True
        await answer_one(bus)
        await until(lambda: bus.missed > 1)
        bus.away = False
        assert (await submit).refused_slots == ()
    assert caplog.text.count("questions wait for the broker") == 1


class Full(MemoryBus):
    """A broker whose disk can be too full for outcomes."""

    full = False

    async def settle(self, outcome: Outcome) -> Outcome:
        if self.full:
            raise Overloaded("its disk is full")
        return await super().settle(outcome)


async def test_a_full_disk_does_not_say_that_nothing_was_kept(start: Start, tokenizer: Tokenizer) -> None:
    bus = Full(BusSettings(queue_bound=3, lease_s=3600))
    await bus.announce(lease(tokenizer))
    router, batch = await start(bus), batch_of("Why?", "", request_id="half")
    bus.full = True
    with pytest.raises(BusUnavailable, match="its disk is full"):
        await router.submit(batch)
    bus.full = False
    again = await router.submit(batch)
    assert (again.duplicate, again.refused_slots) == (True, (1,))
    assert [question.slot for question in await taken_from(bus)] == [0]


async def test_a_wait_outlives_a_full_disk_and_refuses_what_was_late(start: Start, tokenizer: Tokenizer) -> None:
    bus = Full(BusSettings(queue_bound=3, lease_s=3600))
    await bus.announce(lease(tokenizer))
    router = await start(bus)
    await router.submit(many(ROOM, "full"))
    bus.full = True
    async with asyncio.timeout(DEADLINE_S):
        submit = asyncio.create_task(router.submit(batch_of("Why?", "", request_id="waits")))
        await until(lambda: router.waiters == 1)
        bus.full = False
        await answer_one(bus)
        assert (await submit).refused_slots == (1,)
    record = await bus.request(rid_of("", "waits"))
    assert record is not None
    assert set(record.outcomes) == {1}


class Silent(MemoryBus):
    """A broker whose polls end in ``error``, if there is one."""

    error: Exception | None = None
    polls = 0

    async def depths(self) -> Mapping[Lane, int]:
        self.polls += 1
        if self.error is not None:
            raise self.error
        return await super().depths()


@pytest.mark.parametrize("error", [BusUnavailable("away"), RuntimeError("no such stream")], ids=repr)
async def test_a_lost_broker_is_told_of_once(
    start: Start, tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    bus = Silent(BusSettings(queue_bound=3, lease_s=3600))
    await bus.announce(lease(tokenizer))
    router = await start(bus)
    async with asyncio.timeout(DEADLINE_S):
        for losses in (1, 2):
            bus.error, polls = error, bus.polls
            await until(lambda: bus.polls > polls + 3)  # noqa: B023 - awaited at once
            told = [one for one in caplog.records if one.name == "router_svc.watch" and one.levelno >= logging.WARNING]
            assert len(told) == losses
            bus.error = None
            await until(lambda: router.bus_up)


async def test_a_queued_question_says_why_it_is_there(bus: MemoryBus, start: Start) -> None:
    router = await start(bus)
    await router.submit(batch_of("Why?", "Why?", request_id="t"))
    first, second = sorted(await taken_from(bus), key=lambda question: question.slot)
    assert first.home == second.home == str(first.lane)
    assert first.placement.startswith(f"home {first.home} held 0 of at most ")
    assert f"{second.lane}" in second.placement
