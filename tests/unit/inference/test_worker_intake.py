"""When a worker looks for questions, and when it leaves them alone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from inference_svc.arrivals import Arrivals
from inference_svc.clock import Clock
from inference_svc.intake import Intake
from kev.bus.messages import Lane
from kev.domain.errors import BusUnavailable


class Name(str):
    """A taken question."""

    behind = 0


class Lease(NamedTuple):
    """What the intake reads of one."""

    state: str = "ready"


class FakeBus:
    """Sources as lists of names; a take calls ``on_take`` first."""

    def __init__(self) -> None:
        self.sources: dict[str, deque[str]] = {}
        self.taken: list[str] = []
        self.tries: list[str] = []
        self.asked: list[int] = []
        self.tried = asyncio.Event()
        self.alive: dict[str, Any] = {}
        self.away = False
        self.on_take: Callable[[str], None] = lambda source: None

    async def take(self, source: str, most: int) -> list[Name]:
        if self.away:
            raise BusUnavailable("away")
        self.tries.append(source)
        self.asked.append(most)
        self.tried.set()
        waiting = self.sources.get(source) or deque()
        found = [Name(waiting.popleft()) for _ in range(min(most, len(waiting)))]
        for name in found:
            name.behind = len(waiting)
        self.on_take(source)
        await asyncio.sleep(0)
        return found

    async def tried_times(self, count: int) -> list[str]:
        """Waits for so many tries."""
        while len(self.tries) < count:
            self.tried.clear()
            await self.tried.wait()
        return self.tries

    async def depths(self) -> dict[Lane, int]:
        return {Lane(source, 0): len(waiting) for source, waiting in self.sources.items()}

    async def fleet(self) -> dict[str, Any]:
        return self.alive


class Desk:
    """An intake with ``room`` seats."""

    def __init__(
        self, bus: FakeBus, room: int, lease_s: float = 60.0, long_room: int | None = None, clock: Clock | None = None
    ) -> None:
        self.room, self.long_room = room, long_room or 0
        self.got = asyncio.Event()
        self.expected: list[bool] = []
        self.bus = bus
        self.intake = Intake(
            bus,  # type: ignore[arg-type]
            "w1",
            room=lambda long: self.long_room if long else self.room,
            accept=self._accept,
            arrivals=Arrivals(self.expected.append),
            clock=clock or Clock(),
            lease_s=lease_s,
            lanes=long_room is not None,
        )

    def _accept(self, taken: Any, source: str) -> None:
        if source.endswith(".long") and self.long_room:
            self.long_room -= 1
        else:
            self.room -= 1
        self.bus.taken.append(taken)
        self.got.set()

    async def takes(self, count: int) -> list[str]:
        while len(self.bus.taken) < count:
            self.got.clear()
            await self.got.wait()
        return self.bus.taken


@pytest.fixture
async def running() -> Any:
    tasks: list[tuple[Desk, asyncio.Task[None]]] = []

    def start(desk: Desk) -> Desk:
        tasks.append((desk, asyncio.ensure_future(desk.intake.run())))
        return desk

    yield start
    for desk, task in tasks:
        await desk.intake.stop()
        await task


Start = Callable[[Desk], Desk]


@pytest.fixture
def rare_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found in these tests, no sweep has found."""
    monkeypatch.setattr("inference_svc.intake.SWEEP_S", 60.0)
    monkeypatch.setattr("inference_svc.intake.SOON_S", 0.5)


async def test_it_never_takes_more_than_there_is_room_for(running: Start) -> None:
    bus = FakeBus()
    bus.sources["w1"] = deque("abcde")
    desk = running(Desk(bus, room=2))
    assert await desk.takes(2) == ["a", "b"]
    desk.room = 2
    desk.intake.channel_freed()
    assert await desk.takes(4) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("queued", "room", "expected"),
    [("abcde", 8, [True, False]), ("a", 4, []), ("abc", 2, [True, False])],
    ids=["until the last one is taken", "not behind a lone question", "not where there is no room"],
)
async def test_it_tells_while_questions_wait_behind_the_last_one(
    running: Start, queued: str, room: int, expected: list[bool]
) -> None:
    bus = FakeBus()
    bus.sources["w1"] = deque(queued)
    desk = running(Desk(bus, room=room))
    await desk.takes(min(len(queued), room))
    await desk.intake.stop()
    assert desk.expected == expected


async def test_a_batch_in_its_own_queue_is_taken_in_few_calls_and_every_lane_has_its_turn(running: Start) -> None:
    bus = FakeBus()
    bus.sources["w1"] = deque("abcdefghijklmnop")
    desk = running(Desk(bus, room=32))
    assert await desk.takes(16) == list("abcdefghijklmnop")
    await desk.intake.stop()
    # Three takes in their turns; the fourth begins at overflow. Then every other lane is known to be empty.
    asked = list(zip(bus.tries, bus.asked, strict=True))
    assert asked == [("express", 1), ("w1", 3), ("overflow", 1), ("background", 1), ("w1", 29)]


async def test_a_batch_whose_bell_says_where_it_is_costs_one_look(running: Start) -> None:
    bus = FakeBus()
    desk = running(Desk(bus, room=32))
    assert await bus.tried_times(4) == ["express", "w1", "overflow", "background"]
    bus.sources["w1"] = deque("abcdefghijklmnop")
    desk.intake.ring(frozenset({"w1"}))
    assert await desk.takes(16) == list("abcdefghijklmnop")
    await desk.intake.stop()
    assert list(zip(bus.tries[4:], bus.asked[4:], strict=True)) == [("w1", 32)]


async def test_every_queue_that_a_bell_names_is_looked_at_and_takes_its_turn(running: Start) -> None:
    bus = FakeBus()
    desk = running(Desk(bus, room=32))
    await bus.tried_times(4)
    bus.sources |= {"w1": deque("abc"), "overflow": deque("xy"), "background": deque("z")}
    desk.intake.ring(frozenset({"w1"}))
    desk.intake.ring(frozenset({"overflow"}))
    assert "".join(await desk.takes(5)) == "abcxy"
    await desk.intake.stop()
    assert not {"express", "background"} & set(bus.tries[4:])


async def test_what_comes_without_a_bell_is_found_within_a_sweep(
    running: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference_svc.intake.SWEEP_S", 0.05)
    bus = FakeBus()
    desk = running(Desk(bus, room=4))
    await bus.tried_times(4)
    bus.sources["background"] = deque("x")
    async with asyncio.timeout(10):
        assert await desk.takes(1) == ["x"]
    seen = len(bus.tries)
    assert set((await bus.tried_times(seen + 8))[seen:]) == {"express", "w1", "overflow", "background"}


@pytest.mark.usefixtures("rare_sweeps")
@pytest.mark.parametrize(("during", "rings_for"), [("w1", frozenset({"w1"})), ("background", frozenset())])
async def test_a_bell_that_rings_during_a_sweep_is_heard(
    running: Start, during: str, rings_for: frozenset[str]
) -> None:
    bus = FakeBus()
    desk = Desk(bus, room=4)

    def late(source: str) -> None:
        if source == during and not bus.taken and "w1" not in bus.sources:
            bus.sources["w1"] = deque("x")
            desk.intake.ring(rings_for)

    bus.on_take = late
    running(desk)
    async with asyncio.timeout(10):
        assert await desk.takes(1) == ["x"]


@pytest.mark.usefixtures("rare_sweeps")
@pytest.mark.parametrize("source", ["w1", "express"])
async def test_what_the_broker_gives_out_only_a_moment_after_its_bell_does_not_wait_for_the_next_sweep(
    running: Start, source: str
) -> None:
    bus = FakeBus()
    desk = running(Desk(bus, room=4))
    await bus.tried_times(4)
    desk.intake.ring(frozenset({source}))
    assert await bus.tried_times(5)
    bus.sources[source] = deque("x")
    async with asyncio.timeout(10):
        assert await desk.takes(1) == ["x"]
    await desk.intake.stop()
    assert set(bus.tries[4:]) == {source}


@pytest.mark.usefixtures("rare_sweeps")
@pytest.mark.parametrize(
    ("source", "bells", "first", "looks", "rest"),
    [
        pytest.param(
            "express", 1, "x", 6, "y", id="a batch in a shared lane, taken one by one: the last look finds none"
        ),
        pytest.param("w1", 1, "abc", 5, "def", id="a batch in its own queue, of which one look finds a part"),
        pytest.param("w1", 2, "x", 5, "y", id="two that rang, of which one look finds one"),
    ],
)
async def test_the_rest_that_is_given_out_a_moment_later_does_not_wait_for_the_next_sweep(
    running: Start, source: str, bells: int, first: str, looks: int, rest: str
) -> None:
    bus = FakeBus()
    desk = running(Desk(bus, room=16))
    await bus.tried_times(4)
    bus.sources[source] = deque(first)
    for _ in range(bells):
        desk.intake.ring(frozenset({source}))
    assert await desk.takes(len(first)) == list(first)
    await bus.tried_times(looks)
    bus.sources[source] = deque(rest)
    async with asyncio.timeout(10):
        assert await desk.takes(len(first + rest)) == list(first + rest)


@pytest.mark.usefixtures("rare_sweeps")
async def test_a_queue_that_says_itself_that_it_holds_more_is_soon_looked_at_again(running: Start) -> None:
    bus = FakeBus()

    class Partly(Name):
        behind = 1

    async def take(source: str, most: int) -> list[Name]:
        parts = bus.sources.get(source)
        await asyncio.sleep(0)
        return [Partly(parts.popleft())] if parts else []

    bus.take = take  # type: ignore[method-assign]
    bus.sources["w1"] = deque("abc")
    desk = running(Desk(bus, room=16))
    async with asyncio.timeout(10):
        assert await desk.takes(3) == list("abc")


@pytest.mark.usefixtures("rare_sweeps")
async def test_a_look_between_a_bell_and_what_it_told_of_is_not_believed_either(running: Start) -> None:
    bus = FakeBus()
    desk = running(Desk(bus, room=4))
    await bus.tried_times(4)
    desk.intake.ring(frozenset({"w1"}))
    await bus.tried_times(5)
    await asyncio.sleep(0.01)
    desk.intake.ring()  # as once a second, everything is looked at
    await bus.tried_times(9)
    bus.sources["w1"] = deque("x")
    async with asyncio.timeout(10):
        assert await desk.takes(1) == ["x"]


@pytest.mark.usefixtures("rare_sweeps")
async def test_what_is_given_out_while_a_sweep_goes_on_elsewhere_does_not_wait_for_the_next_one(running: Start) -> None:
    class Late(Clock):
        now = 0.0

        def monotonic(self) -> float:
            return self.now

    bus, clock = FakeBus(), Late()
    desk = running(Desk(bus, room=4, clock=clock))
    await bus.tried_times(4)
    desk.intake.ring(frozenset({"express"}))
    await bus.tried_times(5)

    def later(source: str) -> None:
        clock.now = 0.7  # the look at the other queue begins before the moment has passed, and ends after it
        bus.sources["express"] = bus.sources.get("express", deque("x"))

    bus.on_take = later
    desk.intake.ring(frozenset({"overflow"}))
    async with asyncio.timeout(10):
        assert await desk.takes(1) == ["x"]


@pytest.mark.usefixtures("rare_sweeps")
async def test_a_queue_that_stays_empty_after_its_bell_is_looked_at_twice_and_no_more(running: Start) -> None:
    bus = FakeBus()
    desk = running(Desk(bus, room=4))
    await bus.tried_times(4)
    desk.intake.ring(frozenset({"express", "elsewhere"}))
    await bus.tried_times(6)
    await asyncio.sleep(0.6)
    await desk.intake.stop()
    assert bus.tries[4:] == ["express", "express"]


@pytest.mark.usefixtures("rare_sweeps")
async def test_a_queue_that_could_not_be_looked_at_is_not_taken_for_empty(running: Start) -> None:
    bus = FakeBus()
    desk = running(Desk(bus, room=4))
    await bus.tried_times(4)
    bus.sources["w1"], bus.away = deque("x"), True
    desk.intake.ring(frozenset({"w1"}))
    await asyncio.sleep(0.01)
    bus.away = False
    desk.intake.ring(frozenset({"overflow"}))
    async with asyncio.timeout(10):
        assert await desk.takes(1) == ["x"]


async def test_lanes_that_are_not_empty_keep_their_turns_beside_a_long_queue(running: Start) -> None:
    bus = FakeBus()
    bus.sources |= {"w1": deque("abcdefghij"), "overflow": deque("xyz")}
    desk = running(Desk(bus, room=13))
    assert "".join(await desk.takes(13)) == "abcxdefyghiz" + "j"


async def test_of_a_lane_that_others_serve_too_it_takes_one_at_a_time(running: Start) -> None:
    bus = FakeBus()
    bus.sources["overflow"] = deque("xyz")
    desk = running(Desk(bus, room=8))
    assert await desk.takes(3) == ["x", "y", "z"]
    assert {most for source, most in zip(bus.tries, bus.asked, strict=True) if source == "overflow"} == {1}


async def test_what_is_urgent_and_comes_during_a_sweep_is_taken_in_its_turn(running: Start) -> None:
    bus = FakeBus()
    bus.sources["w1"] = deque("abcdef")
    desk = Desk(bus, room=32)

    def late(source: str) -> None:
        if source == "w1" and "express" not in bus.sources:
            bus.sources["express"] = deque("x")
            desk.intake.ring()

    bus.on_take = late
    running(desk)
    assert "".join(await desk.takes(7)) == "abcxdef"


async def test_a_lane_that_was_empty_is_looked_at_again_though_a_sweep_goes_on_and_no_bell_rings(
    running: Start,
) -> None:
    class Late(Clock):
        now = 0.0

        def monotonic(self) -> float:
            return self.now

    bus, clock = FakeBus(), Late()
    bus.sources["w1"] = deque("abcdefghij")
    desk = Desk(bus, room=1, clock=clock)

    def later(source: str) -> None:
        if source == "w1":  # a question that comes back from a worker that died rings no bell
            bus.sources["express"] = bus.sources.get("express", deque("x"))
            clock.now += 0.4
            desk.room += 1

    bus.on_take = later
    running(desk)
    assert "".join(await desk.takes(4)) == "abcx"


async def test_a_freed_channel_costs_no_sweep_when_everything_was_empty(running: Start) -> None:
    bus = FakeBus()
    desk = running(Desk(bus, room=1))
    assert await bus.tried_times(4) == ["express", "w1", "overflow", "background"]
    await asyncio.sleep(0.01)
    desk.intake.channel_freed()
    await asyncio.sleep(0.01)
    assert len(bus.tries) == 4
    desk.intake.ring()
    await bus.tried_times(8)


async def test_orphans_are_served_after_a_lease_of_listening(running: Start) -> None:
    bus = FakeBus()
    bus.sources |= {"old": deque("x"), "live": deque("y")}
    bus.alive = {"live": Lease()}
    desk = running(Desk(bus, room=4, lease_s=0.5))
    assert bus.taken == []
    assert await desk.takes(1) == ["x"]
    assert "live" not in bus.tries


@pytest.mark.parametrize("left", [{}, {"leaving": Lease("draining")}])
async def test_the_queue_of_a_worker_that_takes_its_leave_is_served_when_it_rings(
    running: Start, monkeypatch: pytest.MonkeyPatch, left: dict[str, Lease]
) -> None:
    monkeypatch.setattr("inference_svc.intake.SWEEP_S", 3600.0)
    bus = FakeBus()
    bus.sources["leaving"] = deque("x")
    bus.alive = {"w1": Lease(), "leaving": Lease()}
    desk = running(Desk(bus, room=4, lease_s=0.0))
    await bus.tried_times(4)
    assert bus.taken == []
    bus.alive = {"w1": Lease(), **left}
    desk.intake.ring()
    async with asyncio.timeout(10):
        assert await desk.takes(1) == ["x"]


async def test_a_paused_source_is_left_alone(running: Start) -> None:
    bus = FakeBus()
    bus.sources["overflow"] = deque("x")
    desk = Desk(bus, room=4)
    desk.intake.pause("overflow")
    running(desk)
    assert "overflow" not in await bus.tried_times(3)
    assert await desk.takes(1) == ["x"]


async def test_a_broker_that_is_away_is_asked_again(running: Start) -> None:
    bus = FakeBus()
    bus.away = True
    bus.sources["w1"] = deque("x")
    desk = running(Desk(bus, room=1))
    await asyncio.sleep(0.01)
    bus.away = False
    assert await desk.takes(1) == ["x"]
