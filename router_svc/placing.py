"""Puts questions into queues: chooses channels, publishes, and waits for room if that is the policy."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import product

import msgspec

from kev.bus.messages import QueuedQuestion
from kev.bus.port import NOT_NOW, Bus
from kev.domain.question import Priority
from router_svc import metrics
from router_svc.assign import Placement
from router_svc.lanes import Lanes
from router_svc.overflow import Line
from router_svc.tasks import to_the_end
from router_svc.watch import Watch

log = logging.getLogger(__name__)
_TRIES = 4
"""How often a set is placed anew after the broker named full lanes that looked free."""
_WORTH_SAYING_MS = 100
"""A question that was held for so long is told so in its audit."""


class Filling:
    """The questions of one request on their way into the queues. Changed by ``Placer`` only.

    Attributes:
        left: Not in yet.
        placed: How many are in.
        late: Never found room before their deadlines.
        expired: Their deadlines passed before anybody looked for room.
        told: Whether the log says that they wait for the broker.
    """

    def __init__(self, questions: Sequence[tuple[QueuedQuestion, Priority]]) -> None:
        self.left = list(questions)
        self.placed = 0
        self.late: list[QueuedQuestion] = []
        self.expired: list[QueuedQuestion] = []
        self.told = False

    def bands(self) -> set[Priority]:
        """Bands of what is left."""
        return {band for _, band in self.left}

    @property
    def all_long(self) -> bool:
        """Whether only long questions are left."""
        return bool(self.left) and all(question.lane.long for question, _ in self.left)

    def drop_expired(self, now_ms: int) -> None:
        """Moves questions whose deadline has passed from ``left`` to ``expired``; before the first look for room."""
        self.expired += self._past(now_ms)

    def drop_late(self, now_ms: int) -> None:
        """Moves questions whose deadline has passed from ``left`` to ``late``; after a look that found no room."""
        self.late += self._past(now_ms)

    def _past(self, now_ms: int) -> list[QueuedQuestion]:
        past = [question for question, _ in self.left if question.deadline_ms <= now_ms]
        self.left = [item for item in self.left if item[0].deadline_ms > now_ms]
        return past


class Placer:
    """Owns the lines of waiters. All its work runs in the event loop.

    Background questions wait in a line of their own, and so do long ones: their
    lane may be full for long while the channels have room, and nobody shall wait
    behind that.

    Args:
        max_waiters: Most submits in each line.
        clock: Unix milliseconds.
    """

    def __init__(self, bus: Bus, assigner: Lanes, watch: Watch, max_waiters: int, clock: Callable[[], int]) -> None:
        self._bus = bus
        self._assigner = assigner
        self._watch = watch
        self._lines = {kind: Line(max_waiters) for kind in product((False, True), repeat=2)}
        self._clock = clock

    @property
    def waiters(self) -> int:
        """Submits that wait for room."""
        return sum(len(line) for line in self._lines.values())

    def wake(self) -> None:
        """Room may have appeared."""
        for line in self._lines.values():
            line.wake()

    def check(self, bands: Iterable[Priority]) -> None:
        """Raises ``Overloaded`` if a submit with these bands could not even wait."""
        self._line_for(bands, False).check(self._watch.rate)

    async def at_once(self, filling: Filling) -> bool:
        """Puts in all that is left, or nothing. Whoever waits already goes first.

        Raises:
            BusUnavailable: nobody knows whether it went in; the same submit again repairs that.
        """
        if not filling.left:
            return True
        bands = filling.bands()
        if len(self._line_for(bands, filling.all_long)) and bands != {Priority.EXPRESS}:
            return False
        await to_the_end(self._put(filling, whole=True))
        return not filling.left

    async def patiently(self, filling: Filling, looked: Callable[[], Awaitable[None]]) -> None:
        """Waits in line and puts in part by part, until nothing is left or each question's deadline has passed.

        A broker that does not answer, or whose disk is full, is waited for like room: what went in unseen is not put
        in twice.

        Args:
            looked: Called after every look: parts may have gone in, questions may have become late.

        Raises:
            Overloaded: too many wait already.
        """
        wake = asyncio.Event()
        began = time.monotonic()
        line = self._line_for(filling.bands(), filling.all_long)
        ticket = line.enter(wake.set, len(filling.left), self._watch.rate)
        try:
            self._show_lines()
            self._watch.rush()
            while filling.left:
                if line.first(ticket):
                    await self._try(filling)
                filling.drop_late(self._clock())
                ticket.count = len(filling.left)
                await looked()
                if filling.left and line is not (other := self._line_for(filling.bands(), filling.all_long)):
                    line.leave(ticket)
                    line = other
                    line.move_in(ticket)
                    continue
                await self._sleep(wake, filling)
        finally:
            line.leave(ticket)
            self._show_lines()
            metrics.WAITED.observe(time.monotonic() - began)

    def _line_for(self, bands: Iterable[Priority], all_long: bool) -> Line:
        return self._lines[set(bands) == {Priority.BACKGROUND}, all_long]

    async def _try(self, filling: Filling) -> None:
        try:
            await to_the_end(self._put(filling, whole=False))
        except NOT_NOW as error:
            if not filling.told:
                log.warning("questions wait for the broker: %s", error)
            filling.told = True

    async def _sleep(self, wake: asyncio.Event, filling: Filling) -> None:
        """Until woken, or until the next deadline."""
        if not filling.left:
            return
        deadline = min(question.deadline_ms for question, _ in filling.left)
        try:
            async with asyncio.timeout(max(0.001, (deadline - self._clock()) / 1000)):
                await wake.wait()
        except TimeoutError:
            pass
        wake.clear()

    async def _put(self, filling: Filling, *, whole: bool) -> None:
        for _ in range(_TRIES):
            chosen = self._choose(filling, whole)
            if not chosen:
                return
            if await self._publish(chosen):
                gone = {question.slot for question, _ in chosen}
                filling.left = [item for item in filling.left if item[0].slot not in gone]
                filling.placed += len(chosen)
                return

    def _choose(self, filling: Filling, whole: bool) -> list[tuple[QueuedQuestion, Placement]]:
        """Places for the questions, counted; for all of them or, unless ``whole``, for as many as there is room."""
        chosen: list[tuple[QueuedQuestion, Placement]] = []
        now = time.monotonic()
        for question, band in filling.left:
            barred = self._watch.view.barred_for(question.isolation)
            placement = self._assigner.assign(question.bucket, band, barred, now=now, long=question.lane.long)
            if placement is not None:
                chosen.append((question, placement))
            elif whole:
                self._assigner.loads.undo(placement.lane for _, placement in chosen)
                return []
        return chosen

    async def _publish(self, chosen: Sequence[tuple[QueuedQuestion, Placement]]) -> bool:
        """One atomic publish. False if lanes were full: they are known as full then, and nothing went in."""
        lanes = [placement.lane for _, placement in chosen]
        loads, now_ms = self._assigner.loads, self._clock()
        try:
            with metrics.ENQUEUE.time():
                full = await self._bus.enqueue([_addressed(*item, now_ms) for item in chosen])
        except BaseException:
            # Perhaps they are in: the next poll tells.
            loads.undo(lanes)
            raise
        if full:
            loads.undo(lanes)
            for lane in full:
                metrics.FULL.inc()
                self._assigner.full(lane)
            return False
        loads.confirm(lanes)
        metrics.observe_placed((question.bucket, placement.branch, placement.lane) for question, placement in chosen)
        return True

    def _show_lines(self) -> None:
        metrics.WAITERS.set(self.waiters)
        metrics.WAITING.set(sum(line.questions for line in self._lines.values()))


def _addressed(question: QueuedQuestion, placement: Placement, now_ms: int) -> QueuedQuestion:
    """The question with where it goes, and why."""
    waited = now_ms - question.accepted_ms
    return msgspec.structs.replace(
        question,
        lane=placement.lane,
        branch=placement.branch.value,
        home=str(placement.home) if placement.home else "",
        placement=f"{placement.why}; placed after {waited} ms" if waited >= _WORTH_SAYING_MS else placement.why,
    )
