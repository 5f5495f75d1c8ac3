"""A breaker per bucket: a home that is buried gets time to dig itself out. Pure, time is passed in.

The load bound caps how many questions a hot bucket puts on its home, but it
keeps the home *at* that cap, and whoever else lives there waits behind it.
The breaker lets the home drain:

* **closed**: questions go home. It trips when the home's queue is deep both
  absolutely and against the mean (one of the two alone is no reason: a deep
  queue in a busy fleet is normal, and so is three against a mean of one).
* **open**: no question goes home; they spill along the ring, near home.
* **half-open**, after a pause: every k-th question goes home. If the home is
  no deeper than the mean by then, the breaker closes; if it is deep again, it opens.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Of one bucket's breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """When breakers trip, and how they recover.

    Attributes:
        depth: Least questions in a home's queue that count as deep; 0 turns breakers off.
        factor: Least depth of the home's queue in means.
        open_s: Seconds without any question for the home.
        probe_every: Half-open, one of so many questions goes home.
    """

    depth: int = 8
    factor: float = 1.5
    open_s: float = 2.0
    probe_every: int = 4

    def __post_init__(self) -> None:
        if self.depth < 0 or self.factor < 1 or self.open_s <= 0 or self.probe_every < 1:
            raise ValueError("breaker: depth must be >= 0, factor >= 1, open_s > 0, probe_every >= 1")


@dataclass(slots=True)
class _Tripped:
    until: float
    half_open: bool = False
    asked: int = 0


class Breakers:
    """The breakers of all buckets; only those that are not closed take memory.

    Attributes:
        trips: How often one opened, in all.
    """

    def __init__(self, limits: BreakerLimits) -> None:
        self.trips = 0
        self._limits = limits
        self._tripped: dict[int, _Tripped] = {}

    def lets_home(self, bucket: int, depth: int, mean: float, now: float) -> bool:
        """Whether the bucket's next question may go home.

        Args:
            depth: Questions in the home's queue.
            mean: Questions per channel.
            now: Monotonic seconds.
        """
        tripped = self._tripped.get(bucket)
        if tripped is None:
            if not self._deep(depth, mean):
                return True
            self._open(bucket, now)
            return False
        if not tripped.half_open:
            if now < tripped.until:
                return False
            tripped.half_open = True
        return self._probe(bucket, tripped, depth, mean, now)

    def state(self, bucket: int, now: float) -> State:
        """For people and metrics."""
        tripped = self._tripped.get(bucket)
        if tripped is None:
            return State.CLOSED
        return State.HALF_OPEN if tripped.half_open or now >= tripped.until else State.OPEN

    def states(self, now: float) -> dict[int, State]:
        """The breakers that are not closed."""
        return {bucket: self.state(bucket, now) for bucket in self._tripped}

    def not_closed(self) -> tuple[int, ...]:
        """Buckets whose breaker is open or half-open."""
        return tuple(sorted(self._tripped))

    def _probe(self, bucket: int, tripped: _Tripped, depth: int, mean: float, now: float) -> bool:
        if self._deep(depth, mean):
            self._open(bucket, now)
            return False
        tripped.asked += 1
        if tripped.asked % self._limits.probe_every:
            return False
        if depth <= mean:
            del self._tripped[bucket]
        return True

    def _deep(self, depth: int, mean: float) -> bool:
        limits = self._limits
        return limits.depth > 0 and depth >= limits.depth and depth >= limits.factor * mean

    def _open(self, bucket: int, now: float) -> None:
        self.trips += 1
        self._tripped[bucket] = _Tripped(now + self._limits.open_s)
