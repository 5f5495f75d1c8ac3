"""Finds the next question: sweeps the sources when the bell rings, when a channel gets free, and once a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from inference_svc.clock import Clock
from inference_svc.take_order import orphans, take_order
from kev.bus.port import Bus, Taken
from kev.domain.errors import BusUnavailable

log = logging.getLogger(__name__)
SWEEP_S = 1.0


class Intake:
    """A worker's takes. Never holds more than the worker has room for.

    Args:
        room: Whether one more question may be taken now.
        accept: Gets each taken question, with its source; takes a channel at once.
        lease_s: Nobody is taken for dead before this worker has listened for so long.
    """

    def __init__(
        self,
        bus: Bus,
        worker_id: str,
        *,
        room: Callable[[], bool],
        accept: Callable[[Taken, str], None],
        clock: Clock,
        lease_s: float,
    ) -> None:
        self._bus = bus
        self._worker_id = worker_id
        self._room = room
        self._accept = accept
        self._clock = clock
        self._listening_since = clock.monotonic()
        self._lease_s = lease_s
        self._orphans: tuple[str, ...] = ()
        self._paused: dict[str, float] = {}
        self._turn = 1
        self._more = True
        self._wake = asyncio.Event()
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()

    def ring(self) -> None:
        """Something was queued."""
        self._more = True
        self._wake.set()

    def channel_freed(self) -> None:
        """There is room again; worth a sweep only if the last one left something."""
        if self._more:
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
                self._more = True
                await self._look_for_orphans()
            await self._sweep()
            try:
                await asyncio.wait_for(self._wake.wait(), max(0.0, next_look - self._clock.monotonic()))
            except TimeoutError:
                continue

    async def _sweep(self) -> None:
        """Takes until there is no room or nothing left."""
        while self._more and not self._stopping and self._room():
            self._more = False  # a bell that rings from here on is not lost
            if await self._take_one():
                self._more = True

    async def _take_one(self) -> bool:
        """One round over the sources; whether it found a question."""
        now = self._clock.monotonic()
        for source in take_order(self._worker_id, self._orphans, self._turn):
            if self._paused.get(source, now) > now:
                continue
            try:
                taken = await self._bus.take(source)
            except BusUnavailable:
                return False  # the beat says so; the next sweep tries again
            if taken is not None:
                self._turn += 1
                self._accept(taken, source)
                return True
        return False

    async def _look_for_orphans(self) -> None:
        if self._clock.monotonic() - self._listening_since < self._lease_s:
            return
        try:
            depths, fleet = await self._bus.depths(), await self._bus.fleet()
        except BusUnavailable:
            return
        found = orphans(depths, fleet.keys(), self._worker_id)
        if found != self._orphans and found:
            log.info("serving the queues of workers that are gone: %s", ", ".join(found))
        self._orphans = found
