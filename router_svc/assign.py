"""Which channel gets a question: home within the bound, else along the ring, else the emptier of two. Pure.

**Bounded load**: no channel gets a question that would put it above
``load_factor x mean``, or the mean rounded up where that is more, as this
router sees the loads. So one hot bucket cannot bury one channel. With any load
there is always some channel below that bound; only the queues' own hard bound
can leave a question without a place.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from kev.bus.messages import BACKGROUND, EXPRESS, OVERFLOW, Lane
from kev.domain.outcome import Branch
from kev.domain.question import Priority
from router_svc.breaker import BreakerLimits, Breakers
from router_svc.loads import Loads
from router_svc.ring import Ring

NO_BUCKET = -1
"""The bucket of questions whose strategy uses none: they take the channels in turn."""
SPILL_STEPS = 8
"""How far a question walks the ring before it looks for an emptier channel anywhere."""
_PAIRS = 4

_NO_ROOM = "no channel had room: the overflow lane"

NOBODY: frozenset[str] = frozenset()
_BANDS = {Priority.EXPRESS: (EXPRESS, Branch.EXPRESS), Priority.BACKGROUND: (BACKGROUND, Branch.BACKGROUND)}


class Placement(Struct, frozen=True):
    """Where a question goes, and how it got there.

    Attributes:
        home: The bucket's home among the workers that serve the question; None without bucket or channel.
        why: One sentence for people, a few hundred characters at most.
    """

    lane: Lane
    branch: Branch
    home: Lane | None = None
    why: str = ""


class Assigner:
    """Chooses channels and counts what it chose.

    Args:
        load_factor: Most load of a channel, in means; at least 1.
        queue_bound: Hard bound of a channel's queue, questions.
        shared_bound: Hard bound of a shared lane, questions.
        rng: Picks the pairs of ``spill_least``, and where a rotation starts.
        breaker: When a bucket's home is left alone; None: never.
        overflow: Whether a question without room may go to the overflow lane.
        long: Whether it is for long questions: those have shared lanes of their own.
    """

    def __init__(
        self,
        *,
        load_factor: float,
        queue_bound: int,
        shared_bound: int,
        virtual_nodes: int,
        rng: random.Random,
        breaker: BreakerLimits | None = None,
        overflow: bool = False,
        long: bool = False,
    ) -> None:
        self.loads = Loads()
        self.breakers = Breakers(breaker or BreakerLimits(depth=0))
        self._overflow = overflow
        self._bands = {band: (Lane(lane.source, long=long), branch) for band, (lane, branch) in _BANDS.items()}
        self._overflow_lane = Lane(OVERFLOW.source, long=long)
        self.ring = Ring()
        self.shared_lanes = False
        self._load_factor = load_factor
        self._queue_bound = queue_bound
        self._shared_bound = shared_bound
        self._virtual_nodes = virtual_nodes
        self._rng = rng
        self._turn = rng.randrange(1 << 32)

    def set_members(self, members: Iterable[Lane], *, shared_lanes: bool) -> None:
        """The channels there are now.

        Args:
            shared_lanes: Whether every worker that serves the shared lanes understands this router's questions.
        """
        self.shared_lanes = shared_lanes
        wanted = frozenset(members)
        if wanted != frozenset(self.ring.members):
            self.ring = Ring(wanted, self._virtual_nodes)
            self.loads.count(wanted)

    def bound(self) -> int:
        """Most load that a channel may have after it got one more question."""
        if not self.ring:
            return 0
        mean = (self.loads.total + 1) / len(self.ring)
        # Rounded down, or a short queue would stand far above the factor; but never so far that all are at the bound.
        return min(self._queue_bound, max(math.ceil(mean), math.floor(self._load_factor * mean)))

    def places(self) -> int:
        """Questions that the channels of the ring could take if all were empty."""
        return len(self.ring) * self._queue_bound

    def room(self) -> int:
        """Questions that the channels of the ring can still take."""
        return max(0, self.places() - self.loads.total)

    def any_room(self) -> bool:
        """Whether a normal question has a chance."""
        return self.room() > 0 or self._in_overflow(NOBODY) is not None

    def full(self, lane: Lane) -> None:
        """The broker refused this lane."""
        self.loads.refused(lane, self._shared_bound if lane.shared else self._queue_bound)

    def assign(
        self, bucket: int, band: Priority, barred: frozenset[str] = NOBODY, *, now: float = 0.0
    ) -> Placement | None:
        """Chooses a place and counts it.

        Args:
            bucket: Hash bucket, or ``NO_BUCKET``.
            band: Express and background questions go to the shared lanes.
            now: Monotonic seconds, for the breakers.
            barred: Workers that may not get this question.

        Returns:
            The place, or None if there is no room anywhere.
        """
        placement = self._shared(band, barred)
        if placement is None and not (band is Priority.BACKGROUND and self.shared_lanes):
            placement = self._on_ring(bucket, barred, now) or self._in_overflow(barred)
            if placement is not None and band in self._bands:
                why = f"the {self._bands[band][0]} lane is full or not for this question; {placement.why}"
                placement = replace(placement, why=why)
        if placement is not None:
            self.loads.place(placement.lane)
        return placement

    def _shared(self, band: Priority, barred: frozenset[str]) -> Placement | None:
        """A place in the band's lane. An express question that finds it full goes to a channel;
        a background one does not: it must not get ahead that way."""
        if band not in self._bands or not self.shared_lanes or barred:
            return None
        lane, branch = self._bands[band]
        if self.loads.of(lane) >= self._shared_bound:
            return None
        return Placement(lane, branch, None, f"priority {band.value}: the {lane} lane")

    def _on_ring(self, bucket: int, barred: frozenset[str], now: float) -> Placement | None:
        near = self._near(bucket, barred) if self.room() else ()
        if not near:
            return None
        bound, first = self.bound(), near[0]
        home = None if bucket == NO_BUCKET else first
        closed = "" if home is None else self._keeps_home(bucket, self.loads.of(first), now)
        for step, lane in enumerate(near):
            load = self.loads.of(lane)
            if load < bound and (step or not closed):
                branch = Branch.SPILL_RING if step else Branch.HOME
                return Placement(lane, branch, home, self._why(near, step, load, bound, home, closed))
        least = self._least(bound, barred)
        if least is None:
            return None
        passed = self._passed(first, bound, home, closed)
        why = f"{passed}; the next {len(near) - 1} on the ring were no better; {least} was the emptier of two at random"
        return Placement(least, Branch.SPILL_LEAST, home, why)

    def _keeps_home(self, bucket: int, load: int, now: float) -> str:
        """Why the breaker keeps the bucket's question from its home; empty if it does not."""
        if self.breakers.lets_home(bucket, load, self.loads.total / len(self.ring), now):
            return ""
        return f"breaker of bucket {bucket} {self.breakers.state(bucket, now).value.replace('_', '-')}"

    def _why(self, near: Sequence[Lane], step: int, load: int, bound: int, home: Lane | None, closed: str) -> str:
        """The sentence of a question that found its place on the ring, ``step`` places behind the first."""
        if step:
            passed = self._passed(near[0], bound, home, closed)
            return f"{passed}; {near[step]} held {load}, {step} further on the ring"
        if home is None:
            return "no bucket: channels in turn"
        return f"home {home} held {load} of at most {bound}"

    def _passed(self, first: Lane, bound: int, home: Lane | None, closed: str) -> str:
        """Why the first channel was passed by."""
        name = "the channel in turn" if home is None else "home"
        return closed or f"{name} {first} held {self.loads.of(first)} of at most {bound}"

    def _in_overflow(self, barred: frozenset[str]) -> Placement | None:
        """A place in the lane that any worker empties when it has nothing else to do."""
        if not self._overflow or not self.shared_lanes or barred:
            return None
        has_room = self.loads.of(self._overflow_lane) < self._shared_bound
        return Placement(self._overflow_lane, Branch.OVERFLOW, None, _NO_ROOM) if has_room else None

    def _near(self, bucket: int, barred: frozenset[str]) -> Sequence[Lane]:
        """Where the question may go before it is sent far away, the best first."""
        if barred:
            return list(islice((lane for lane in self._order(bucket) if lane.source not in barred), 1 + SPILL_STEPS))
        if bucket != NO_BUCKET:
            return self.ring.near(bucket, 1 + SPILL_STEPS)
        return list(islice(self._order(bucket), 1 + SPILL_STEPS))

    def _order(self, bucket: int) -> Iterator[Lane]:
        if bucket != NO_BUCKET:
            return self.ring.walk(bucket)
        members = self.ring.members
        self._turn = (self._turn + 1) % len(members)
        return (members[(self._turn + step) % len(members)] for step in range(len(members)))

    def _least(self, bound: int, barred: frozenset[str]) -> Lane | None:
        """The emptier of two random channels; if chance finds only full ones, the emptiest of all."""
        members = [lane for lane in self.ring.members if lane.source not in barred] if barred else self.ring.members
        if not members:
            return None
        for _ in range(_PAIRS):
            lane = min(self._rng.choice(members), self._rng.choice(members), key=self.loads.of)
            if self.loads.of(lane) < bound:
                return lane
        lane = min(members, key=self.loads.of)
        return lane if self.loads.of(lane) < self._queue_bound else None
