"""Where a worker looks for its next question, and which queues are orphaned. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kev.bus.messages import BACKGROUND, EXPRESS, OVERFLOW, Lane

OVERFLOW_EVERY = 4
BACKGROUND_EVERY = 16


def take_order(own: str, orphans: Sequence[str], turn: int) -> tuple[str, ...]:
    """The sources of one take, in the order in which they are tried.

    Express, own, overflow, orphans, background. Every 4th take begins at
    overflow and every 16th at background, and goes round from there, so that
    nothing starves. Orphans take turns among themselves.

    Args:
        own: This worker's id.
        orphans: Sources without a living worker.
        turn: Number of the take, from 1.
    """
    shift = turn % len(orphans) if orphans else 0
    ring = (EXPRESS.source, own, OVERFLOW.source, *orphans[shift:], *orphans[:shift], BACKGROUND.source)
    if turn % BACKGROUND_EVERY == 0:
        first = BACKGROUND.source
    elif turn % OVERFLOW_EVERY == 0:
        first = OVERFLOW.source
    else:
        return ring
    at = ring.index(first)
    return ring[at:] + ring[:at]


def orphans(depths: Mapping[Lane, int], alive: Collection[str], own: str) -> tuple[str, ...]:
    """Workers that have questions in their queues and do not live any more, by name."""
    waiting = {lane.source for lane, depth in depths.items() if depth > 0 and not lane.shared}
    return tuple(sorted(waiting.difference(alive, (own,))))
