"""Finds the next question: sweeps the sources when the bell rings, when a channel gets free, and once a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from inference_svc.arrivals import Arrivals
from inference_svc.clock import Clock
from inference_svc.take_order import orphans, take_order
from kev.bus.port import Bus, Taken
from kev.domain.errors import BusUnavailable
from kev.domain.ids import short_queue

log = logging.getLogger(__name__)
SWEEP_S = 1.0


class Intake:
    """A worker's takes. Never holds more than the worker has room for.

    Args:
        room: Whether one more question, long or not, may be taken now.
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
        room: Callable[[bool], bool],
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
        self._paused: dict[str, float] = {}
        self._turns = dict.fromkeys(self._kinds, 1)
        self._more = dict.fromkeys(self._kinds, True)
        self._wake = asyncio.Event()
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()

    def ring(self) -> None:
        """Something was queued."""
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
            if self._clock.monotonic() >= next_look:
                next_look = self._clock.monotonic() + SWEEP_S
                self._look_again()
                await self._look_for_orphans()
            await self._sweep()
            try:
                await asyncio.wait_for(self._wake.wait(), max(0.0, next_look - self._clock.monotonic()))
            except TimeoutError:
                continue

    async def _sweep(self) -> None:
        """Takes until there is no room or nothing left, of each kind."""
        for long in self._kinds:
            with self._arrivals.behind() as behind:
                while self._more[long] and not self._stopping and self._room(long):
                    self._more[long] = False  # a bell that rings from here on is not lost
                    if (taken := await self._take_one(long)) is not None:
                        self._more[long] = True
                        behind.set(taken.behind > 0)

    def _look_again(self) -> None:
        for long in self._kinds:
            self._more[long] = True

    async def _take_one(self, long: bool) -> Taken | None:
        """One round over the sources, until one has a question."""
        now = self._clock.monotonic()
        orphaned = [queue for queue in self._orphans if not self._lanes or (queue != short_queue(queue)) is long]
        for source in take_order(self._worker_id, orphaned, self._turns[long], long):
            if self._paused.get(source, now) > now:
                continue
            try:
                taken = await self._bus.take(source)
            except BusUnavailable:
                return None  # the beat says so; the next sweep tries again
            if taken is not None:
                self._turns[long] += 1
                self._accept(taken, source)
                return taken
        return None

    async def _look_for_orphans(self) -> None:
        if self._clock.monotonic() - self._listening_since < self._lease_s:
            return
        try:
            depths, fleet = await self._bus.depths(), await self._bus.fleet()
        except BusUnavailable:
            return
        found = orphans(depths, fleet.keys(), self._worker_id, self._lanes)
        if found != self._orphans and found:
            log.info("serving queues that nobody else serves: %s", ", ".join(found))
        self._orphans = found
