"""Buses to test: memory under a clock that the test moves, and connections to a real nats-server."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kev.bus.memory import MemoryBus
from kev.bus.nats import NatsBus
from kev.bus.settings import BusSettings

T = TypeVar("T")

SHORT: dict[str, Any] = {
    "queue_bound": 8,
    "shared_lane_bound": 24,
    "ack_wait_s": 0.8,
    "lease_s": 1.0,
    "result_ttl_s": 60.0,
}
_NAMESPACES = (f"t{number}" for number in itertools.count(1))


class MemoryLab:
    """Memory buses under a clock that the test moves."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._offset_ms = time.time_ns() // 1_000_000 - 1_000_000
        self._bus: MemoryBus | None = None

    async def connect(self, **changes: Any) -> MemoryBus:
        """The bus; all tiers of a process share one."""
        if self._bus is None:
            settings = BusSettings(**(SHORT | changes))
            self._bus = MemoryBus(
                settings, monotonic=lambda: self._now, wall_ms=lambda: self._offset_ms + int(self._now * 1000)
            )
        return self._bus

    async def pass_time(self, seconds: float) -> None:
        """Moves the clock."""
        self._now += seconds

    async def close(self) -> None:
        if self._bus is not None:
            await self._bus.close()


class NatsLab:
    """Connections to one real broker, under names of their own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._namespace = next(_NAMESPACES)
        self._buses: list[NatsBus] = []

    async def connect(self, **changes: Any) -> NatsBus:
        """One more connection, as one more process would have."""
        settings = BusSettings(**(SHORT | {"urls": (self._url,), "namespace": self._namespace} | changes))
        bus = await NatsBus.connect(settings)
        self._buses.append(bus)
        return bus

    async def pass_time(self, seconds: float) -> None:
        """The broker has a clock of its own: only time makes time pass."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        for bus in self._buses:
            await bus.close()


Lab = MemoryLab | NatsLab


async def eventually(read: Callable[[], Awaitable[T]], fits: Callable[[T], bool]) -> T:
    """Reads until it fits: for what travels between processes and has no event of its own."""
    for _ in range(1000):
        found = await read()
        if fits(found):
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"still {found!r} after ten seconds")
