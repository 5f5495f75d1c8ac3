"""Taking as most tests do it."""

from __future__ import annotations

from kev.bus.port import Bus, Taken


async def take_one(bus: Bus, source: str) -> Taken | None:
    """The next question of a source; None if there is none."""
    taken = await bus.take(source, 1)
    return taken[0] if taken else None
