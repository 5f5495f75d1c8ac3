"""How long a client that was cut off goes on asking."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket

import grpc
import pytest

from aggregator_svc.__main__ import DRAIN_S as AGGREGATOR_DRAIN_S
from kev.client import AsyncClient, again
from kev.domain.errors import BusUnavailable
from router_svc.__main__ import DRAIN_S as ROUTER_DRAIN_S

STARTS_AGAIN_S = 3.0
"""A tool that keeps a service alive waits a moment, and the service reads its model's vocabulary."""


async def test_who_has_no_time_left_is_told_soon_that_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    real = asyncio.sleep

    async def slept(seconds: float) -> None:
        pauses.append(seconds)
        await real(0)

    monkeypatch.setattr(asyncio, "sleep", slept)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        async with asyncio.timeout(30), AsyncClient(f"127.0.0.1:{nobody.getsockname()[1]}") as client:
            with pytest.raises(BusUnavailable):
                await client.wait("some-request", timeout=0)
    assert 0 < sum(pauses) < 4


async def test_a_reader_outlasts_the_planned_restart_of_a_lone_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draining service takes no new calls, and there may be no other one."""
    pauses: list[float] = []

    async def slept(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", slept)
    monkeypatch.setattr(random, "uniform", lambda least, most: least)
    gone = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())
    failures = itertools.count(1)

    async def cut_off() -> None:
        while True:
            await again.before_resume(gone, next(failures))

    with pytest.raises(BusUnavailable):
        await cut_off()
    assert sum(pauses) > max(AGGREGATOR_DRAIN_S, ROUTER_DRAIN_S) + STARTS_AGAIN_S
    assert sum(pauses) < 30, "it does give up"
