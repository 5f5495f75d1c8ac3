"""Keeps the router's view of fleet and queues fresh: a poll a few times a second."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from kev.bus.port import Bus
from kev.domain.errors import BusUnavailable
from router_svc import metrics
from router_svc.fleet import FleetView, view_of
from router_svc.lanes import Lanes
from router_svc.overflow import DrainRate

log = logging.getLogger(__name__)


class Watch:
    """Owns the polling task, the fleet view, and the drain rate.

    Args:
        assigner: Told about members and depths.
        changed: Called after every poll.
        hurry: Whether somebody waits for room: then the poll runs ``hurry_s`` apart.
    """

    def __init__(
        self,
        bus: Bus,
        assigner: Lanes,
        *,
        tokenizer_digest: str,
        max_context: int,
        poll_s: float,
        hurry_s: float,
        changed: Callable[[], None],
        hurry: Callable[[], bool],
    ) -> None:
        self.view = FleetView()
        self.rate = DrainRate()
        self.bus_up = False
        self._trouble = ""
        self._bus = bus
        self._assigner = assigner
        self._digest = tokenizer_digest
        self._max_context = max_context
        self._poll_s, self._hurry_s = poll_s, hurry_s
        self._changed, self._hurry = changed, hurry
        self._rush = asyncio.Event()
        self._poll_lock = asyncio.Lock()

    def rush(self) -> None:
        """Somebody waits for room: poll soon."""
        self._rush.set()

    async def run(self) -> None:
        """Polls until cancelled."""
        while True:
            await self._try()
            await self._pause()

    async def _try(self) -> None:
        """One poll. What is wrong is told once, until it is over or something else: polls come several times a
        second."""
        told, self._trouble = self._trouble, ""
        try:
            await self.poll()
        except BusUnavailable as error:
            self._trouble = "the broker does not answer"
            if self._trouble != told:
                log.warning("%s (%s); trying on", self._trouble, error)
        except Exception as error:  # a poll that fails must not end the polling
            self._trouble = repr(error)
            if self._trouble != told:
                log.exception("a poll failed; trying on")

    async def poll(self) -> None:
        """Reads fleet and depths once.

        Raises:
            BusUnavailable: the broker does not answer; the old view stays.
        """
        async with self._poll_lock:
            loads = self._assigner.loads
            loads.mark()
            try:
                fleet = await self._bus.fleet()
                depths = await self._bus.depths()
            except BaseException:
                loads.missed()
                self.bus_up = False
                raise
            self.bus_up = True
            loads.observe(depths)
            view = view_of(fleet, self._digest, self._max_context)
            self._log_changes(view)
            self.view = view
            ring = self._assigner.ring
            self._assigner.set_members(view.members, shared_lanes=view.shared_lanes)
            if self._assigner.ring is not ring:
                metrics.observe_homes(self._assigner.ring)
            self.rate.update(time.monotonic(), loads.total, loads.arrived)
            metrics.observe_fleet(len(fleet), len(view.members), loads.total, self.rate.per_second)
            metrics.OLDEST.set(self._bus.oldest_s)
            metrics.observe_breakers(self._assigner.breakers(time.monotonic()))
            metrics.observe_depths({lane: loads.of(lane) for lane in {*view.members, *depths}})
        self._changed()

    def _log_changes(self, view: FleetView) -> None:
        for worker, reason in (view.reasons or {}).items():
            if (self.view.reasons or {}).get(worker) != reason:
                log.warning("worker %s gets no questions: %s", worker, reason)
        if bool(view.members) != bool(self.view.members):
            log.info("the fleet has %d usable channels", len(view.members))

    async def _pause(self) -> None:
        """Until the next poll. Who begins to wait is told soon: what looks full may have drained since the last one."""
        polled = time.monotonic()
        pause = self._hurry_s if self._hurry() else self._poll_s
        self._rush.clear()
        try:
            async with asyncio.timeout(pause):
                await self._rush.wait()
        except TimeoutError:
            return
        await asyncio.sleep(max(0.0, polled + self._hurry_s - time.monotonic()))
