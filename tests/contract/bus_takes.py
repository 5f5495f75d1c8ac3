"""Taking as most tests do it.

A broker says that a question is stored a moment before it gives it out, and so
promises no bus that the next look finds it. What a test put in it waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kev.bus.messages import QueuedQuestion
from kev.bus.port import Bus, Taken

DEADLINE_S = 10.0


async def take_some(bus: Bus, source: str, count: int) -> Sequence[Taken]:
    """So many questions of a source, as soon as they can be had."""
    taken = list(await bus.take(source, count))
    async with asyncio.timeout(DEADLINE_S):
        while len(taken) < count:
            await asyncio.sleep(0.001)
            taken += await bus.take(source, count - len(taken))
    return taken


async def take_one(bus: Bus, source: str) -> Taken:
    """The next question of a source, as soon as it can be had."""
    return (await take_some(bus, source, 1))[0]


async def all_there(bus: Bus, source: str, count: int) -> None:
    """Returns when so many can be had at once. The first was taken and given back."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            first = await take_one(bus, source)
            await first.give_back()
            if first.behind == count - 1:
                return


async def nothing_in(bus: Bus, source: str) -> bool:
    """Whether a look at a source finds no question."""
    return not await bus.take(source, 1)


async def drain(bus: Bus, source: str, held: int = 0) -> list[QueuedQuestion]:
    """All questions of a source, acknowledged one by one.

    Args:
        held: So many of them are in somebody's hands, and stay there.
    """
    waiting = sum(depth for lane, depth in (await bus.depths()).items() if lane.queue == source) - held
    questions = []
    for _ in range(waiting):
        taken = await take_one(bus, source)
        await taken.ack()
        questions.append(taken.question)
    assert await nothing_in(bus, source)
    return questions
