"""Outcome first, acknowledgement second: the order that loses no answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kev.bus.port import NOT_NOW, Bus, Taken
from kev.domain.errors import BusUnavailable, NotFound
from kev.domain.outcome import Outcome

log = logging.getLogger(__name__)
T = TypeVar("T")
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0


async def persist(call: Callable[[], Awaitable[T]], what: str) -> T:
    """Calls until the broker answers, and has room. Ends early only by cancellation."""
    pause = FIRST_PAUSE_S
    while True:
        try:
            return await call()
        except NOT_NOW as error:
            level = logging.WARNING if pause == FIRST_PAUSE_S else logging.DEBUG
            log.log(level, "%s: not now (%s); trying on", what, error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


async def settle_and_ack(bus: Bus, taken: Taken, outcome: Outcome) -> Outcome | None:
    """Stores a slot's outcome, whatever it takes, and then finishes its question.

    Returns:
        The stored outcome, whoever wrote it; None when the request is gone.
    """
    try:
        stored: Outcome | None = await persist(lambda: bus.settle(outcome), "settle")
    except NotFound:
        stored = None  # nobody can ask for it any more
    await ack(taken)
    return stored


async def ack(taken: Taken) -> None:
    """Finishes a question. If that is lost for good, the next holder finds the outcome and drops it."""
    while taken.held:
        try:
            await taken.ack()
        except BusUnavailable:
            await asyncio.sleep(FIRST_PAUSE_S)
        else:
            return
