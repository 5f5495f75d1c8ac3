"""No question is lost, and none is answered twice: redelivery, crashers, stuck models, a broker that is away."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from worker_lab import (
    FakeBackend,
    bus_for,
    letters,
    naive_tokens,
    nothing_queued,
    outcomes,
    question,
    settings_with,
    submit,
    worker,
)

from inference_svc.self_test import SelfTestFailed
from inference_svc.worker import WorkerFailed
from kev.bus.memory import MemoryBus
from kev.bus.messages import OVERFLOW, CancelHint, Lane, Piece
from kev.bus.port import Taken
from kev.domain.errors import BusUnavailable, NotServed, Overloaded
from kev.domain.outcome import FinishReason, Outcome, Status
from kev.domain.question import Isolation, Sampling

LONG = {"max_tokens": 90, "sampling": Sampling(3.0)}


class Gate:
    """Holds the model thread inside a forward until opened."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.go = threading.Event()

    def __call__(self, pack: object) -> None:
        self.inside.set()
        assert self.go.wait(60)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.inside.wait, 60)


class Watched:
    """A bus that writes down what is called, and may refuse."""

    def __init__(self, bus: MemoryBus) -> None:
        self.bus = bus
        self.calls: list[str] = []
        self.refuse: set[str] = set()
        self.refused: set[str] = set()
        self.error: Exception = BusUnavailable("away")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        real = getattr(self.bus, name)
        if not asyncio.iscoroutinefunction(real):
            return real

        async def call(*args: Any) -> Any:
            if name in self.refuse:
                self.refused.add(name)
                raise self.error
            if name in ("settle", "strike", "dead_letter"):
                self.calls.append(name)
            reply = await real(*args)
            return [WatchedTaken(self, taken) for taken in reply] if name == "take" else reply

        return call


class WatchedTaken:
    """Writes down what becomes of a question."""

    def __init__(self, watched: Watched, taken: Taken) -> None:
        self._watched = watched
        self._taken = taken

    def __getattr__(self, name: str) -> Any:
        if name in ("ack", "give_back"):
            self._watched.calls.append(name)
        return getattr(self._taken, name)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.005)


async def test_the_outcome_is_stored_before_the_question_is_acknowledged() -> None:
    watched = Watched(bus_for(settings_with()))
    async with worker(watched):
        await submit(watched.bus, [question(0, [1])])
        await nothing_queued(watched.bus)
    assert watched.calls == ["settle", "ack"]


async def test_a_question_that_has_an_outcome_is_dropped() -> None:
    watched = Watched(bus_for(settings_with()))
    backend = FakeBackend()
    await submit(watched.bus, [question(0, [1])])
    await watched.bus.settle(Outcome("req-1", "r1", 0, Status.CANCELLED, FinishReason.CANCELLED))
    async with worker(watched, backend):
        await nothing_queued(watched.bus)
    assert watched.calls == ["ack"]
    assert backend.packs == []


async def test_a_request_that_is_gone_costs_nothing() -> None:
    bus = bus_for(settings_with())
    async with worker(bus):
        await bus.enqueue([question(0, [1])])
        await nothing_queued(bus)
    assert await bus.request("r1") is None


@pytest.mark.parametrize("error", [BusUnavailable("away"), Overloaded("its disk is full")], ids=repr)
async def test_a_broker_that_goes_away_or_is_full_delays_an_answer_and_loses_none(error: Exception) -> None:
    gate = Gate()
    watched = Watched(bus_for(settings_with(bus__ack_wait_ms=20_000)))
    watched.error = error
    async with worker(watched, FakeBackend(before=gate), settings=settings_with(bus__ack_wait_ms=20_000)) as running:
        await submit(watched.bus, [question(0, [1]), question(1, [2])])
        await gate.reached()
        watched.refuse = {"settle", "take", "outcome", "announce", "depths", "publish_delta"}
        gate.go.set()
        await _until(lambda: running.free == running.identity.channels)
        await _until(lambda: watched.refused >= {"settle", "take", "announce"})
        watched.refuse = set()
        found = await outcomes(watched.bus)
    assert {(outcome.status, outcome.attempt) for outcome in found.values()} == {(Status.ANSWERED, 1)}


async def test_a_cancel_frees_the_channel_by_the_next_forward() -> None:
    gate = Gate()
    bus = bus_for(settings_with(bus__ack_wait_ms=20_000))
    backend = FakeBackend(before=gate)
    async with worker(bus, backend, settings=settings_with(bus__ack_wait_ms=20_000)) as running:
        await submit(bus, [question(0, [1], **LONG)])
        await gate.reached()
        await submit(bus, [question(0, [2], rid="r2", lane=Lane("w1", 1), **LONG)])
        await bus.settle(Outcome("req-1", "r1", 0, Status.CANCELLED, FinishReason.CANCELLED))
        await bus.hint_cancel(CancelHint("r1", (0,)))
        await asyncio.sleep(0.05)
        gate.go.set()
        await outcomes(bus, "r2")
        await _until(lambda: running.free == 4)
        await nothing_queued(bus)
    assert [span.channel for span in backend.packs[0].spans] == [0]
    assert all(span.channel == 1 for pack in backend.packs[1:] for span in pack.spans)
    assert (await bus.outcome("r1", 0)).status is Status.CANCELLED  # type: ignore[union-attr]


async def test_a_hint_without_a_cancel_changes_nothing() -> None:
    gate = Gate()
    bus = bus_for(settings_with())
    async with worker(bus, FakeBackend(before=gate)):
        await submit(bus, [question(0, [1])])
        await gate.reached()
        await bus.hint_cancel(CancelHint("r1", (0,)))
        gate.go.set()
        assert (await outcomes(bus))[0].status is Status.ANSWERED


async def test_a_question_taken_again_runs_alone_after_a_strike() -> None:
    watched = Watched(bus_for(settings_with()))
    await submit(watched.bus, [question(n, [n + 1], max_tokens=6, lane=OVERFLOW) for n in range(3)])
    taken = await watched.bus.take("overflow", 1)
    await taken[0].give_back()
    backend = FakeBackend()
    async with worker(watched, backend):
        found = await outcomes(watched.bus)
    again = found[0]
    assert again.status is Status.ANSWERED
    assert (again.attempt, again.audit.attempts) == (2, 2)
    assert watched.calls.count("strike") == 1
    channel = again.audit.channel_id
    with_it = [pack for pack in backend.packs if any(span.channel == channel for span in pack.spans)]
    assert all(len(pack.spans) == 1 for pack in with_it if pack.spans[0].tokens[0] == 1)


async def test_a_slow_worker_that_gets_its_own_question_again_goes_on_with_it() -> None:
    """Nobody crashed: no strike, no second run, no reset, however often the ack wait passes."""
    watched = Watched(bus_for(settings_with()))
    gate = Gate()
    backend = FakeBackend(before=gate)
    asked = question(0, [1], max_tokens=10, sampling=Sampling(3.0), lane=OVERFLOW)
    async with worker(watched, backend) as running:
        await submit(watched.bus, [asked])
        await gate.reached()
        for _ in range(4):
            while not (again := await watched.take("overflow", 1)):  # noqa: ASYNC110 - the bus has no event for it
                await asyncio.sleep(0.01)
            running.serving.accept(again[0], "overflow")
        gate.go.set()
        found = (await outcomes(watched.bus))[0]
        await nothing_queued(watched.bus)
        assert running.free == 4
    assert (found.status, found.attempt) == (Status.ANSWERED, 1)
    assert found.audit.attempts >= 5
    assert found.text == letters(naive_tokens([1], 10, asked.sampling, 0, 128))
    assert len(backend.packs) == found.audit.forwards
    assert (watched.calls.count("strike"), watched.calls.count("settle")) == (0, 1)


async def test_suspects_run_one_at_a_time_and_only_the_running_one_is_blamed() -> None:
    settings = settings_with(bus__ack_wait_ms=20_000)
    watched = Watched(bus_for(settings))
    await submit(watched.bus, [question(n, [n + 1], max_tokens=6, lane=OVERFLOW) for n in range(4)])
    suspects = await watched.bus.take("overflow", 3)
    assert len(suspects) == 3
    for taken in suspects:
        await taken.give_back()
    gate = Gate()
    backend = FakeBackend(before=gate)
    async with worker(watched, backend, settings=settings) as running:
        await gate.reached()
        await _until(lambda: running.free == 0)
        await asyncio.sleep(0.05)
        assert watched.calls.count("strike") == 1
        await watched.bus.settle(Outcome("req-1", "r1", 1, Status.CANCELLED, FinishReason.CANCELLED))
        await watched.bus.hint_cancel(CancelHint("r1", (1,)))
        await _until(lambda: running.free == 1)
        gate.go.set()
        found = await outcomes(watched.bus)
        await nothing_queued(watched.bus)
    assert watched.calls.count("strike") == 2
    assert [found[n].status.value for n in range(4)] == ["answered", "cancelled", "answered", "answered"]
    assert [found[n].attempt for n in range(4)] == [2, 0, 2, 1]


async def test_a_deadline_also_ends_the_wait_for_a_turn() -> None:
    settings = settings_with(bus__ack_wait_ms=20_000)
    bus = bus_for(settings)
    now = time.time_ns() // 1_000_000
    deadlines = (now + 60_000, now + 1_500)  # the first one's turn comes, however slow the machine is
    await submit(bus, [question(n, [n + 1], lane=OVERFLOW, deadline_ms=at) for n, at in enumerate(deadlines)])
    suspects = await bus.take("overflow", 2)
    assert len(suspects) == 2
    for taken in suspects:
        await taken.give_back()
    gate = Gate()
    async with worker(bus, FakeBackend(before=gate), settings=settings):
        await gate.reached()
        while (waiting := await bus.outcome("r1", 1)) is None:  # noqa: ASYNC110 - the bus has no event for it
            await asyncio.sleep(0.005)
        assert waiting.status is Status.TIMED_OUT
        gate.go.set()
        await outcomes(bus)


async def test_three_strikes_and_it_is_dead_lettered() -> None:
    watched = Watched(bus_for(settings_with()))
    await submit(watched.bus, [question(0, [1], lane=OVERFLOW), question(1, [2], lane=OVERFLOW)])
    for _ in range(3):
        (taken,) = await watched.bus.take("overflow", 1)
        assert taken.question.slot == 0
        if taken.attempt > 1:
            await watched.bus.strike("r1", 0)
        await taken.give_back()
    async with worker(watched):
        found = await outcomes(watched.bus)
        await nothing_queued(watched.bus)
    assert (found[0].status, found[0].reason) == (Status.FAILED, "crashed")
    assert found[1].status is Status.ANSWERED
    letter = (await watched.bus.dead_letters())[0]
    assert (letter.question.slot, letter.strikes) == (0, 3)
    assert watched.calls.index("dead_letter") < watched.calls.index("settle")


async def test_a_stuck_model_loses_its_questions_and_its_place() -> None:
    settings = settings_with(bus__ack_wait_ms=300, bus__lease_ms=300)
    bus = bus_for(settings)
    gate = Gate()
    async with worker(bus, FakeBackend(before=gate), settings=settings) as stuck:
        await submit(bus, [question(0, [1], lane=OVERFLOW), question(1, [2])])
        await gate.reached()
        await _until(lambda: not stuck.healthy)
        async with worker(bus, settings=settings, worker_id="w2"):
            found = await outcomes(bus)
            assert "w1" not in await bus.fleet()
            gate.go.set()
            await _until(lambda: stuck.free == 4)
            await nothing_queued(bus)
        late = await outcomes(bus)
    assert {outcome.audit.worker_id for outcome in found.values()} == {"w2"}
    assert found[1].audit.branch == "adopted"
    assert late == found


async def test_a_model_that_advances_keeps_its_questions() -> None:
    settings = settings_with(bus__ack_wait_ms=300)
    bus = bus_for(settings)
    backend = FakeBackend(before=lambda pack: threading.Event().wait(0.02))
    async with worker(bus, backend, settings=settings):
        await submit(bus, [question(n, [n + 1], max_tokens=60, sampling=Sampling(3.0)) for n in range(4)])
        found = await outcomes(bus)
    assert {outcome.attempt for outcome in found.values()} == {1}


async def test_the_queue_of_a_dead_worker_is_served_by_another() -> None:
    settings = settings_with()
    bus = bus_for(settings)
    await submit(bus, [question(n, [n + 1], lane=Lane("gone", n)) for n in range(3)])
    async with worker(bus, settings=settings):
        found = await outcomes(bus)
    assert {outcome.audit.branch for outcome in found.values()} == {"adopted"}


async def test_a_living_workers_queue_is_left_alone() -> None:
    settings = settings_with(bus__lease_ms=300)
    bus = bus_for(settings)
    gate = Gate()
    gate.go.set()
    async with worker(bus, settings=settings, worker_id="w2") as other:
        await other._intake.stop()
        await submit(bus, [question(0, [1], lane=Lane("w2", 0))])
        async with worker(bus, settings=settings):
            await asyncio.sleep(1.5)
            assert (await bus.request("r1")).open_slots() == (0,)  # type: ignore[union-attr]


async def test_a_drain_finishes_what_it_can_and_gives_back_the_rest() -> None:
    settings = settings_with(core__max_context=100_000, bus__ack_wait_ms=20_000)
    bus = bus_for(settings)
    endless = {"max_tokens": 90_000, "sampling": Sampling(3.0)}
    backend = FakeBackend(before=lambda pack: threading.Event().wait(0.005), max_context=100_000, pages=30_000)
    async with worker(bus, backend, settings=settings) as running:
        await submit(bus, [question(0, [1], max_tokens=3)])
        await submit(bus, [question(0, [2], rid="r2", lane=OVERFLOW, **endless)])
        await _until(lambda: running.free < 4)
        drained = await running.drain(0.5)
        assert (await outcomes(bus))[0].status is Status.ANSWERED
        assert running.state == "draining"
        assert "w1" not in await bus.fleet()
    if not (await bus.request("r2")).outcomes:  # type: ignore[union-attr]
        assert drained.returned == 1
        (taken,) = await bus.take("overflow", 1)
        assert taken.attempt == 2


async def test_a_question_that_every_drain_gives_back_is_blamed_for_none_of_them() -> None:
    """As in an upgrade of many workers, one after the other: nothing crashed, so nothing runs alone, or fails."""
    settings = settings_with(core__max_context=100_000, bus__ack_wait_ms=20_000)
    bus = bus_for(settings)
    late = time.time_ns() // 1_000_000 + 300_000
    endless = {"max_tokens": 90_000, "sampling": Sampling(3.0), "lane": OVERFLOW, "deadline_ms": late}
    await submit(bus, [question(n, [n + 1], **endless) for n in range(3)])
    for drains in range(6):
        together = threading.Event()

        def look(pack: Any, seen: threading.Event = together) -> None:
            if len(pack.spans) == 3:
                seen.set()
            threading.Event().wait(0.005)

        backend = FakeBackend(before=look, max_context=100_000, pages=30_000)
        async with worker(bus, backend, settings=settings) as running:
            assert await asyncio.to_thread(together.wait, 60), f"they run apart after {drains} drains"
            assert (await running.drain(0)).returned == 3
    assert (await bus.request("r1")).open_slots() == (0, 1, 2)  # type: ignore[union-attr]
    for slot in range(3):
        assert [await bus.strike("r1", slot) for _ in range(2)] == [0, 1], "a crash counts from here on"


async def test_what_waits_behind_a_drain_is_answered_by_another_worker_while_that_goes_on() -> None:
    settings = settings_with(bus__ack_wait_ms=60_000, bus__lease_ms=60_000)
    bus = bus_for(settings)
    gate = Gate()
    async with worker(bus, FakeBackend(before=gate), settings=settings) as running:
        await submit(bus, [question(n, [2], rid="r2") for n in range(4)])
        await gate.reached()
        await _until(lambda: running.free == 0)
        await submit(bus, [question(0, [1])])
        draining = asyncio.ensure_future(running.drain(60))
        try:
            async with asyncio.timeout(30), worker(bus, worker_id="w2"):
                assert (await outcomes(bus))[0].audit.worker_id == "w2"
                assert not draining.done()
        finally:
            gate.go.set()
            await draining


async def test_late_readers_get_the_text_so_far() -> None:
    gate = Gate()
    gate.go.set()
    bus = bus_for(settings_with(bus__ack_wait_ms=20_000))
    held: list[int] = []

    def hold(pack: object) -> None:
        held.append(1)
        if len(held) == 5:
            gate.go.clear()
            gate(pack)

    async with worker(bus, FakeBackend(before=hold), settings=settings_with(bus__ack_wait_ms=20_000)):
        asked = question(0, [3], max_tokens=40, sampling=Sampling(3.0))
        await submit(bus, [asked])
        await gate.reached()
        await asyncio.sleep(0.05)
        sofar = letters(naive_tokens([3], 4, asked.sampling, 0, 128))
        assert await bus.catch_up("r1") == (Piece(0, 1, "w1/0", 0, sofar),)
        gate.go.set()


async def test_the_lease_says_who_serves_what() -> None:
    bus = bus_for(settings_with())
    async with worker(bus, model_digest="m"):
        lease = (await bus.fleet())["w1"]
        assert (lease.channels, lease.free, lease.state, lease.levels) == (4, 4, "ready", ("strict",))
        assert (lease.model_digest, lease.tokenizer_digest, lease.max_context) == ("m", "fake-tokens", 128)
        async with asyncio.timeout(20):
            while (await bus.fleet())["w1"].beat <= 3:  # noqa: ASYNC110 - the bus has no event for it
                await asyncio.sleep(0.01)


def _failing(backend: object) -> str:
    raise SelfTestFailed("packed differs from alone")


async def test_strict_is_not_served_after_a_failed_self_test() -> None:
    bus = bus_for(settings_with())
    with pytest.raises(NotServed, match="packed differs from alone"):
        async with worker(bus, self_test=_failing):
            pass
    settings = settings_with(isolation__level="shared")
    async with worker(bus, self_test=_failing, settings=settings):
        assert (await bus.fleet())["w1"].levels == ("shared",)
        await submit(bus, [question(0, [1]), question(1, [1], isolation=Isolation.SHARED)])
        found = await outcomes(bus)
    assert (found[0].status, found[0].reason) == (Status.REFUSED, "not_served")
    assert found[1].status is Status.ANSWERED


async def test_a_worker_whose_model_thread_ends_says_so() -> None:
    bus = bus_for(settings_with())
    backend = FakeBackend()

    def broken(pages: object) -> None:
        raise MemoryError("gone")

    backend.scrub = broken  # type: ignore[method-assign]
    made = worker(bus, backend)
    async with made as running:
        serving = asyncio.ensure_future(running.run())
        await submit(bus, [question(0, [1], max_tokens=1)])
        with pytest.raises(WorkerFailed, match="gone"):
            await serving
        assert not running.healthy
