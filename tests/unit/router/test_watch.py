"""When the router looks at fleet and queues."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace

import pytest
from router_lab import settings_with

from kev.bus.memory import MemoryBus
from router_svc.lanes import Lanes
from router_svc.router import _assigner
from router_svc.watch import Watch

HOUR_S = 3600.0


async def test_who_begins_to_wait_is_not_kept_waiting_when_the_last_look_was_long_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, looks = 0.0, asyncio.Queue[None]()
    monkeypatch.setattr("router_svc.watch.time", SimpleNamespace(monotonic=lambda: now))
    watch = Watch(
        MemoryBus(),
        Lanes(lambda long: _assigner(settings_with(), random.Random(1), long), split=False),
        tokenizer_digest="t",
        max_context=1,
        poll_s=2 * HOUR_S,
        hurry_s=HOUR_S,
        changed=lambda: looks.put_nowait(None),
        hurry=lambda: False,
    )
    running = asyncio.ensure_future(watch.run())
    try:
        async with asyncio.timeout(10):
            await looks.get()
            now += HOUR_S
            watch.rush()
            await looks.get()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
