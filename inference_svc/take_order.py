"""Where a worker looks for its next question, and which queues are orphaned. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from kev.bus.messages import BACKGROUND, EXPRESS, OVERFLOW, Lane
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
        orphans: Sources without a living worker.
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


class Turns:
    """Whose turn the next take is.

    A worker may take several questions from its own queue in one call. Each is
    a turn, and the turns of other lanes that lie between are owed: they come
    next, and a seat is kept free for each.
    """

    def __init__(self) -> None:
        self._next = 1
        self._owed: deque[int] = deque()

    def begin(self) -> int:
        """The number of the turn that comes now."""
        return self._owed[0] if self._owed else self._next

    def own(self, room: int) -> int:
        """How many of the next ``room`` takes are the own queue's: at most so many may be taken from it at once."""
        left = room - len(self._owed)
        return sum(_is_own(turn) for turn in range(self._next, self._next + left))

    def count(self, taken: int, own: bool) -> None:
        """So many questions were taken, from the own queue or from another source."""
        if taken and self._owed:  # this take was one of those, whatever lane it found a question in
            self._owed.popleft()
            taken -= 1
        while taken:
            if own and not _is_own(self._next):
                self._owed.append(self._next)
            else:
                taken -= 1
            self._next += 1

    def forget(self) -> None:
        """No source had a question: nobody is owed a turn."""
        self._owed.clear()


def _is_own(turn: int) -> bool:
    return turn % OVERFLOW_EVERY != 0 and turn % BACKGROUND_EVERY != 0


def orphans(depths: Mapping[Lane, int], alive: Collection[str], own: str, lanes: bool = False) -> tuple[str, ...]:
    """Queues that hold questions and that nobody else is bound to serve, by name: of workers that do not live any more.

    Args:
        lanes: Whether this worker has long channels. One that has none also looks after the shared long queues and
            its own: whoever filled them may be gone.
    """
    waiting = [lane for lane, depth in depths.items() if depth > 0]
    dead = {lane.queue for lane in waiting if not lane.shared and lane.source not in alive and lane.source != own}
    left = {lane.queue for lane in waiting if lane.long and not lanes and (lane.shared or lane.source == own)}
    return tuple(sorted(dead | left))
