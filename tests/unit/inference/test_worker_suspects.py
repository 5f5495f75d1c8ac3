"""Suspects take turns."""

from __future__ import annotations

import asyncio

from inference_svc.suspects import Suspects


async def test_turns_go_first_come_first_served() -> None:
    line = Suspects()
    order: list[int] = []

    async def visit(ticket: int) -> None:
        assert await line.turn(ticket, 60)
        order.append(ticket)
        await asyncio.sleep(0)
        line.done(ticket)

    await asyncio.gather(*(visit(ticket) for ticket in range(5)))
    assert order == [0, 1, 2, 3, 4]


async def test_a_wait_ends_by_stop_or_by_time() -> None:
    line = Suspects()
    assert await line.turn(1, 60)
    stopped = asyncio.ensure_future(line.turn(2, 60))
    late = asyncio.ensure_future(line.turn(3, 0.01))
    last = asyncio.ensure_future(line.turn(4, 60))
    await asyncio.sleep(0)
    line.stop(2)
    assert not await stopped
    assert not await late
    line.done(3)
    assert not last.done()
    line.done(1)
    assert await last


async def test_a_turn_that_nobody_waits_for_is_free() -> None:
    line = Suspects()
    assert await line.turn(1, 0)
    assert not await line.turn(2, 0)
    line.done(1)
    assert await line.turn(2, 0)
