"""Puts questions into queues: chooses channels, publishes, and waits for room if that is the policy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from kev.bus.messages import QueuedQuestion
from kev.bus.port import Bus
from kev.domain.question import Priority
from router_svc import metrics
from router_svc.assign import Assigner, Placement
from router_svc.overflow import Line
from router_svc.tasks import to_the_end
from router_svc.watch import Watch

_TRIES = 4
"""How often a set is placed anew after the broker named full lanes that looked free."""


class Filling:
    """The questions of one request on their way into the queues. Changed by ``Placer`` only.

    Attributes:
        left: Not in yet.
        placed: How many are in.
        late: Never found room before their deadlines.
    """

    def __init__(self, questions: Sequence[tuple[QueuedQuestion, Priority]]) -> None:
        self.left = list(questions)
        self.placed = 0
        self.late: list[QueuedQuestion] = []

    def drop_late(self, now_ms: int) -> None:
        """Moves questions whose deadline has passed from ``left`` to ``late``."""
        self.late += [question for question, _ in self.left if question.deadline_ms <= now_ms]
        self.left = [item for item in self.left if item[0].deadline_ms > now_ms]


class Placer:
    """Owns the line of waiters. All its work runs in the event loop.

    Args:
        clock: Unix milliseconds.
    """

    def __init__(self, bus: Bus, assigner: Assigner, watch: Watch, line: Line, clock: Callable[[], int]) -> None:
        self._bus = bus
        self._assigner = assigner
        self._watch = watch
        self._line = line
        self._clock = clock

    async def at_once(self, filling: Filling) -> bool:
        """Puts in all that is left, or nothing. Whoever waits already goes first.

        Raises:
            BusUnavailable: nobody knows whether it went in; the same submit again repairs that.
        """
        if len(self._line) and any(band is not Priority.EXPRESS for _, band in filling.left):
            return False
        await to_the_end(self._put(filling, whole=True))
        return not filling.left

    async def patiently(self, filling: Filling, looked: Callable[[], Awaitable[None]]) -> None:
        """Waits in line and puts in part by part, until nothing is left or each question's deadline has passed.

        Args:
            looked: Called after every look: parts may have gone in, questions may have become late.

        Raises:
            Overloaded: too many wait already.
            BusUnavailable: as ``at_once``.
        """
        wake = asyncio.Event()
        began = time.monotonic()
        ticket = self._line.enter(wake.set, len(filling.left), self._watch.rate)
        try:
            self._show_line()
            self._watch.rush()
            while filling.left:
                if self._line.first(ticket):
                    await to_the_end(self._put(filling, whole=False))
                filling.drop_late(self._clock())
                ticket.count = len(filling.left)
                await looked()
                await self._sleep(wake, filling)
        finally:
            self._line.leave(ticket)
            self._show_line()
            metrics.WAITED.observe(time.monotonic() - began)

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
            placement = self._assigner.assign(question.bucket, band, barred, now=now)
            if placement is not None:
                chosen.append((question, placement))
            elif whole:
                self._assigner.loads.undo(placement.lane for _, placement in chosen)
                return []
        return chosen

    async def _publish(self, chosen: Sequence[tuple[QueuedQuestion, Placement]]) -> bool:
        """One atomic publish. False if lanes were full: they are known as full then, and nothing went in."""
        lanes = [placement.lane for _, placement in chosen]
        loads = self._assigner.loads
        try:
            with metrics.ENQUEUE.time():
                full = await self._bus.enqueue([_addressed(*item) for item in chosen])
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

    def _show_line(self) -> None:
        metrics.WAITERS.set(len(self._line))
        metrics.WAITING.set(self._line.questions)


def _addressed(question: QueuedQuestion, placement: Placement) -> QueuedQuestion:
    return msgspec.structs.replace(question, lane=placement.lane, branch=placement.branch.value)
