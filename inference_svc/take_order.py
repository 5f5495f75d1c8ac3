"""Where a worker looks for its next question, and which queues are orphaned. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kev.bus.messages import BACKGROUND, EXPRESS, OVERFLOW, READY, Lane, WorkerLease
from kev.domain.ids import long_queue

OVERFLOW_EVERY = 4
BACKGROUND_EVERY = 16
_LATER = (OVERFLOW.source, BACKGROUND.source)


def take_order(own: str, orphans: Sequence[str], turn: int, long: bool = False) -> tuple[str, ...]:
    """The sources of one take, in the order in which they are tried.

    Express, own, overflow, orphans, background. Every 4th take begins at
    overflow and every 16th at background, and goes round from there, so that
    nothing starves. Orphans take turns among themselves.

    Args:
        own: This worker's id.
        orphans: Sources whose worker takes nothing any more.
        turn: Number of the take, from 1.
        long: Of the long queues instead; ``orphans`` are such.
    """
    named = long_queue if long else str
    express, own, overflow, background = (named(name) for name in (EXPRESS.source, own, *_LATER))
    shift = turn % len(orphans) if orphans else 0
    ring = (express, own, overflow, *orphans[shift:], *orphans[:shift], background)
    if turn % BACKGROUND_EVERY == 0:
        first = background
    elif turn % OVERFLOW_EVERY == 0:
        first = overflow
    else:
        return ring
    at = ring.index(first)
    return ring[at:] + ring[:at]


def in_a_row(source: str, orders: Iterable[Sequence[str]], skipped: Collection[str]) -> int:
    """How many takes may be done as one: so many would come to this source, one after the other.

    Args:
        orders: Of the takes after the first one.
        skipped: Sources that are passed over: known to be empty, or left alone.
    """
    count = 1
    for order in orders:
        if next((one for one in order if one not in skipped), "") != source:
            break
        count += 1
    return count


def who_take(fleet: Mapping[str, WorkerLease]) -> frozenset[str]:
    """Workers that take questions. One that drains lives on for as long as its running answers need, and takes none:
    what waits in its queue shall not wait for those."""
    return frozenset(name for name, lease in fleet.items() if lease.state == READY)


def orphans(depths: Mapping[Lane, int], taking: Collection[str], own: str, lanes: bool = False) -> tuple[str, ...]:
    """Queues that hold questions and that nobody else is bound to serve, by name: of workers that take none any more.

    Args:
        taking: Workers that do.
        lanes: Whether this worker has long channels. One that has none also looks after the shared long queues and
            its own: whoever filled them may be gone.
    """
    waiting = [lane for lane, depth in depths.items() if depth > 0]
    dead = {lane.queue for lane in waiting if not lane.shared and lane.source not in taking and lane.source != own}
    left = {lane.queue for lane in waiting if lane.long and not lanes and (lane.shared or lane.source == own)}
    return tuple(sorted(dead | left))
