"""A worker with long channels: long questions on those, all others beside them, nothing left behind."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from worker_lab import FakeBackend, bus_for, nothing_queued, outcomes, question, settings_with, submit, worker

from kev.bus.messages import Lane
from kev.domain.outcome import Status

LANES: dict[str, Any] = {"router__long_channels": 2}
"""Of four channels."""
DEADLINE_S = 30


async def test_long_questions_run_on_the_long_channels_and_no_others_do() -> None:
    settings = settings_with(**LANES)
    bus = bus_for(settings)
    long = [question(n, [n] * 20, lane=Lane("w1", 3, long=True)) for n in range(8)]
    shared = [question(n, [n] * 20, lane=Lane("express", long=True)) for n in range(8, 12)]
    short = [question(n, [n], lane=Lane("w1", 0), strategy="length_aware") for n in range(12, 24)]
    async with asyncio.timeout(DEADLINE_S), worker(bus, settings=settings):
        lease = (await bus.fleet())["w1"]
        assert (lease.channels, lease.long_channels) == (4, 2)
        await submit(bus, [*long, *shared, *short])
        answers = await outcomes(bus)
        await nothing_queued(bus)
    assert {answer.status for answer in answers.values()} == {Status.ANSWERED}
    assert {answers[n].audit.channel_id for n in range(12)} == {2, 3}
    assert {answers[n].audit.channel_id for n in range(12, 24)} == {0, 1}
    assert answers[12].audit.strategy == "length_aware"


async def test_more_long_questions_than_channels_leave_the_others_theirs() -> None:
    """Nothing long ends before the short ones have: they must find channels all the same."""
    backend = FakeBackend(before=lambda pack: time.sleep(0.001))
    settings = settings_with(**LANES)
    bus = bus_for(settings)
    async with asyncio.timeout(DEADLINE_S), worker(bus, backend, settings=settings):
        await submit(bus, [question(n, [n] * 60, max_tokens=60, lane=Lane("w1", 2, long=True)) for n in range(6)])
        for round_ in range(3):
            rid = f"short{round_}"
            await submit(bus, [question(n, [n], rid=rid, max_tokens=1, lane=Lane("w1", n % 2)) for n in range(4)])
            await outcomes(bus, rid)
        record = await bus.request("r1")
        assert record is not None
        assert record.open_slots()
        await outcomes(bus)


async def test_a_worker_without_long_channels_drains_the_long_queues_that_nobody_serves() -> None:
    settings = settings_with()
    bus = bus_for(settings)
    lanes = [Lane("gone", 3, long=True), Lane("w1", 3, long=True), Lane("background", long=True)]
    async with asyncio.timeout(DEADLINE_S), worker(bus, settings=settings):
        await submit(bus, [question(n, [n] * 20, lane=lane) for n, lane in enumerate(lanes)])
        answers = await outcomes(bus)
    assert [answers[n].audit.branch for n in range(3)] == ["adopted", "home", "home"]


async def test_a_dead_workers_long_queue_is_drained_by_the_long_channels_of_another() -> None:
    settings = settings_with(**LANES)
    bus = bus_for(settings)
    async with asyncio.timeout(DEADLINE_S), worker(bus, settings=settings):
        await submit(bus, [question(n, [n] * 20, lane=Lane("gone", n, long=n > 1)) for n in range(4)])
        answers = await outcomes(bus)
    assert {answers[n].audit.channel_id for n in (0, 1)} <= {0, 1}
    assert {answers[n].audit.channel_id for n in (2, 3)} <= {2, 3}
    assert {answer.audit.branch for answer in answers.values()} == {"adopted"}
