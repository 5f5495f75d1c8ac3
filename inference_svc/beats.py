"""A worker's lease: announced at the start, renewed several times in its length while the model advances."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kev.bus.messages import WorkerLease
from kev.bus.port import NOT_NOW, Bus

log = logging.getLogger(__name__)
BEATS_PER_LEASE = 4


class Beats:
    """Renews one lease.

    Args:
        lease_s: How long a lease lasts, seconds.
        lease: The lease as it stands now, given the number of the beat.
        healthy: Whether the model advances: a stuck worker must be seen as gone, so it does not beat.
    """

    def __init__(
        self, bus: Bus, lease_s: float, lease: Callable[[int], WorkerLease], healthy: Callable[[], bool]
    ) -> None:
        self._bus = bus
        self._pause_s = lease_s / BEATS_PER_LEASE
        self._lease = lease
        self._healthy = healthy
        self._number = 0
        self._said_down = False

    async def announce(self) -> None:
        """One beat.

        Raises:
            BusUnavailable, Overloaded: the broker does not answer, or has no room.
        """
        self._number += 1
        await self._bus.announce(self._lease(self._number))

    async def beat(self) -> None:
        """One beat; a broker that does not take it is told of once, until it does again."""
        try:
            await self.announce()
        except NOT_NOW as error:
            if not self._said_down:
                log.warning("the broker takes no beat (%s); trying on", error)
            self._said_down = True
        else:
            self._said_down = False

    async def run(self) -> None:
        """Beats until cancelled."""
        while True:
            await asyncio.sleep(self._pause_s)
            if self._healthy():
                await self.beat()
