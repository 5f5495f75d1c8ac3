"""What the tests of the NATS bus share."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from kev.bus.nats import NatsBus
from kev.bus.nats.server import LocalNats
from kev.bus.settings import BusSettings
from kev.domain.errors import BusUnavailable

# The same makers of messages as the contract suite.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "contract"))

T = TypeVar("T")
SHORT: dict[str, Any] = {
    "ack_wait_s": 1.0,
    "lease_s": 1.0,
    "reconnect_wait_s": 0.05,
    "request_timeout_s": 2.0,
    "connect_timeout_s": 3.0,
}


async def connect(server: LocalNats, **changes: Any) -> NatsBus:
    return await NatsBus.connect(BusSettings(**(SHORT | {"urls": (server.url,)} | changes)))


async def until(read: Callable[[], Awaitable[T]], fits: Callable[[T], bool]) -> T:
    """Reads until it fits: for what has no event of its own."""
    for _ in range(1000):
        found = await read()
        if fits(found):
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"still {found!r} after twenty seconds")


async def when_back(call: Callable[[], Awaitable[T]]) -> T:
    """The result of ``call`` as soon as the broker answers again."""
    for _ in range(400):
        try:
            return await call()
        except BusUnavailable:
            await asyncio.sleep(0.05)
    raise AssertionError("the broker did not come back in 20 seconds")
