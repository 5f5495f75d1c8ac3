"""Finds the next questions: sweeps the sources when the bell rings, when a channel gets free, and once a second.

Once a second, and when a worker has left, it also looks for queues that nobody serves any more.

A source that was found empty is passed over until a bell names it, but for a second
at most: what comes back from a worker that died rings no bell. So a batch costs one
look at the queue that it is in, not a look at every lane for each of its questions.

A broker may say that a question is stored a moment before it gives it out. So a queue
in which less is found than was asked for, right after its bell, is looked at once more
when that moment has passed, however often it was looked at meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from inference_svc.arrivals import Arrivals
from inference_svc.clock import Clock
from inference_svc.take_order import in_a_row, orphans, take_order, who_take
from kev.bus.port import NOT_NOW, Bus, Taken
from kev.domain.ids import short_queue

log = logging.getLogger(__name__)
SWEEP_S = 1.0
SOON_S = 0.02


class Intake:
    """A worker's takes. Never holds more than the worker has room for.

    Args:
        room: How many more questions, long or not, may be taken now.
        accept: Gets each taken question, with its source; takes a channel at once.
        lease_s: Nobody is taken for dead before this worker has listened for so long.
        arrivals: Is told whether questions wait behind the last one taken.
        lanes: Whether this worker has long channels: then long questions are taken for those and for no others, and
            the two kinds never wait for each other. Without, long queues are looked after like orphans.
    """

    def __init__(
        self,
        bus: Bus,
        worker_id: str,
        *,
        room: Callable[[bool], int],
        accept: Callable[[Taken, str], None],
        arrivals: Arrivals,
        clock: Clock,
        lease_s: float,
        lanes: bool = False,
    ) -> None:
        self._bus = bus
        self._worker_id = worker_id
        self._room = room
        self._accept = accept
        self._arrivals = arrivals
        self._clock = clock
        self._listening_since = clock.monotonic()
        self._lease_s = lease_s
        self._lanes = lanes
        self._kinds = (False, True) if lanes else (False,)
        self._orphans: tuple[str, ...] = ()
        self._taking: frozenset[str] = frozenset()
        self._paused: dict[str, float] = {}
        self._turns = dict.fromkeys(self._kinds, 1)
        self._more = dict.fromkeys(self._kinds, True)
        self._empty: dict[str, float] = {}  # until when it is passed over
        self._rung: dict[str, float] = {}  # until when a look that does not find enough is not believed
        self._wake = asyncio.Event()
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()

    def ring(self, queues: frozenset[str] = frozenset()) -> None:
        """Something was queued.

        Args:
            queues: Where; none if that is not known.
        """
        for source in queues or tuple(self._empty):
            self._empty.pop(source, None)
        self._rung |= dict.fromkeys(queues, self._clock.monotonic() + SOON_S)
        self._look_again()
        self._wake.set()

    def channel_freed(self, long: bool = False) -> None:
        """There is room again; worth a sweep only if the last one left something."""
        if self._more[long and self._lanes]:
            self._wake.set()

    def pause(self, source: str) -> None:
        """Leaves a source alone for one sweep: what was given back there is for others."""
        self._paused[source] = self._clock.monotonic() + SWEEP_S

    async def stop(self) -> None:
        """Takes nothing more; returns when the take that is under way has ended."""
        self._stopping = True
        self._wake.set()
        await self._idle.wait()

    async def run(self) -> None:
        """Sweeps until stopped."""
        self._idle.clear()
        try:
            await self._run()
        finally:
            self._idle.set()

    async def _run(self) -> None:
        next_look = self._clock.monotonic()
        while not self._stopping:
            self._wake.clear()
            if self._clock.monotonic() >= next_look or await self._somebody_left():
                next_look = self._clock.monotonic() + SWEEP_S
                self._empty.clear()
                self._look_again()
                await self._look_for_orphans()
            self._believe()
            await self._sweep()
            until = min([next_look, *self._rung.values()])
            try:
                await asyncio.wait_for(self._wake.wait(), max(0.0, until - self._clock.monotonic()))
            except TimeoutError:
                continue

    async def _sweep(self) -> None:
        """Takes until there is no room or nothing left, of each kind."""
        for long in self._kinds:
            with self._arrivals.behind() as behind:
                while self._more[long] and not self._stopping and (room := self._room(long)):
                    self._more[long] = False  # a bell that rings from here on is not lost
                    if taken := await self._take(long, room):
                        self._more[long] = True
                        behind.set(taken[-1].behind > 0)

    def _believe(self) -> None:
        """Looks at those once more whose bell has rung a moment ago, and from then on believes what is found."""
        now = self._clock.monotonic()
        if passed := [source for source, until in self._rung.items() if until <= now]:
            for source in passed:
                del self._rung[source]
            self._look_again()

    def _look_again(self) -> None:
        for long in self._kinds:
            self._more[long] = True

    async def _take(self, long: bool, room: int) -> Sequence[Taken]:
        """One round over the sources, until one has a question."""
        now = self._clock.monotonic()
        skipped = {source for source, until in (*self._paused.items(), *self._empty.items()) if until > now}
        for source in self._order(long, self._turns[long]):
            if source in skipped:
                continue
            most = self._most(source, long, room, skipped)
            self._empty[source] = now + SWEEP_S  # unless a bell rings meanwhile
            try:
                found = await self._bus.take(source, most)
            except NOT_NOW:
                self._empty.pop(source, None)
                return ()  # the beat says so; the next sweep tries again
            if len(found) == most:
                self._empty.pop(source, None)
            elif source in self._empty:
                skipped.add(source)
                self._doubt(source, found, now)
            self._turns[long] += len(found)
            for taken in found:
                self._accept(taken, source)
            if found:
                return found
        return ()

    def _doubt(self, source: str, found: Sequence[Taken], began: float) -> None:
        """Of a source that did not give what was asked for: it may give the rest a moment after its bell, or after it
        has said itself that there is more."""
        if found and found[-1].behind:
            self._rung[source] = self._clock.monotonic() + SOON_S
        if (until := self._rung.get(source, began)) > began:
            self._empty[source] = until

    def _order(self, long: bool, turn: int) -> Sequence[str]:
        orphaned = [queue for queue in self._orphans if not self._lanes or (queue != short_queue(queue)) is long]
        return take_order(self._worker_id, orphaned, turn, long)

    def _most(self, source: str, long: bool, room: int, skipped: Collection[str]) -> int:
        """How many questions to take from a source in one call. What waits in this worker's own queue is for it
        alone, so it takes as many as would come to it one by one; of any other it takes one, and looks again."""
        if short_queue(source) != self._worker_id:
            return 1
        turn = self._turns[long]
        orders = (self._order(long, turn + later) for later in range(1, room))
        return in_a_row(source, orders, skipped)

    async def _somebody_left(self) -> bool:
        """Whether a worker takes nothing more since the last look for orphans. One that takes its leave rings for
        all."""
        if not self._taking:
            return False
        try:
            return not self._taking <= who_take(await self._bus.fleet())
        except NOT_NOW:
            return False

    async def _look_for_orphans(self) -> None:
        if self._clock.monotonic() - self._listening_since < self._lease_s:
            return
        try:
            depths, fleet = await self._bus.depths(), await self._bus.fleet()
        except NOT_NOW:
            return
        self._taking = who_take(fleet)
        found = orphans(depths, self._taking, self._worker_id, self._lanes)
        if found != self._orphans and found:
            log.info("serving queues that nobody else serves: %s", ", ".join(found))
        self._orphans = found
