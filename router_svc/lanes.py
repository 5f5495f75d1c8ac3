"""Long questions and the others: two assigners side by side, so that neither kind waits for the other. Pure.

Each has its own channels, its own shared lanes and its own view of the loads.
While no worker has long channels, long questions go where all go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from kev.bus.messages import Lane
from kev.domain.question import Priority
from router_svc.assign import NOBODY, Assigner, Placement
from router_svc.breaker import State
from router_svc.loads import Loads
from router_svc.ring import Ring

_WORST_LAST = (State.CLOSED, State.HALF_OPEN, State.OPEN)


class BothLoads:
    """The loads of both kinds; see ``Loads``."""

    def __init__(self, short: Loads, long: Loads) -> None:
        self._both = {False: short, True: long}

    @property
    def total(self) -> int:
        """Questions in all channels' lanes."""
        return sum(loads.total for loads in self._both.values())

    @property
    def arrived(self) -> int:
        """See ``Loads``."""
        return sum(loads.arrived for loads in self._both.values())

    def of(self, lane: Lane) -> int:
        """Questions in a lane."""
        return self._both[lane.long].of(lane)

    def confirm(self, lanes: Iterable[Lane]) -> None:
        """See ``Loads.confirm``."""
        for lane in lanes:
            self._both[lane.long].confirm((lane,))

    def undo(self, lanes: Iterable[Lane]) -> None:
        """See ``Loads.undo``."""
        for lane in lanes:
            self._both[lane.long].undo((lane,))

    def mark(self) -> None:
        """See ``Loads.mark``."""
        for loads in self._both.values():
            loads.mark()

    def observe(self, depths: Mapping[Lane, int]) -> None:
        """See ``Loads.observe``."""
        for long, loads in self._both.items():
            loads.observe({lane: depth for lane, depth in depths.items() if lane.long is long})

    def missed(self) -> None:
        """See ``Loads.missed``."""
        for loads in self._both.values():
            loads.missed()


class Lanes:
    """Chooses channels for questions of both kinds and counts what it chose.

    Args:
        make: Makes the assigner of the long questions, or of the others.
        split: Whether this deployment makes a difference of length; without, long channels get nothing.
    """

    def __init__(self, make: Callable[[bool], Assigner], *, split: bool) -> None:
        self.short, self.long = make(False), make(True)
        self.loads = BothLoads(self.short.loads, self.long.loads)
        self._split = split

    @property
    def ring(self) -> Ring:
        """The channels that are not for long questions; a fleet has some, or it has none at all."""
        return self.short.ring

    def set_members(self, members: Iterable[Lane], *, shared_lanes: bool) -> None:
        """The channels there are now; see ``Assigner.set_members``."""
        found = frozenset(members)
        self.short.set_members((lane for lane in found if not lane.long), shared_lanes=shared_lanes)
        self.long.set_members((lane for lane in found if lane.long and self._split), shared_lanes=shared_lanes)

    def assign(
        self, bucket: int, band: Priority, barred: frozenset[str] = NOBODY, *, now: float = 0.0, long: bool = False
    ) -> Placement | None:
        """Chooses a place and counts it; see ``Assigner.assign``."""
        if not long:
            return self.short.assign(bucket, band, barred, now=now)
        has_lane = bool(self.long.ring)
        placement = (self.long if has_lane else self.short).assign(bucket, band, barred, now=now)
        if placement is None:
            return None
        kind = "long lane" if has_lane else "long, but no worker has long channels"
        return replace(placement, why=f"{kind}: {placement.why}")

    def any_room(self) -> bool:
        """Whether a normal question has a chance, long or not."""
        return self.short.any_room() or self.long.any_room()

    def places(self) -> int:
        """Questions that the channels could take if all were empty."""
        return self.short.places() + self.long.places()

    def missing(self, short: int, long: int) -> int:
        """Places that so many questions would need beyond those that there are."""
        if not self.long.ring:
            return max(0, short + long - self.short.room())
        return max(0, short - self.short.room()) + max(0, long - self.long.room())

    def full(self, lane: Lane) -> None:
        """The broker refused this lane."""
        (self.long if lane.long else self.short).full(lane)

    def breakers(self, now: float) -> dict[int, State]:
        """Breakers that are not closed, by bucket; of the two kinds, the worse one."""
        worst: dict[int, State] = {}
        for side in (self.short, self.long):
            for bucket, state in side.breakers.states(now).items():
                worst[bucket] = max(worst.get(bucket, State.CLOSED), state, key=_WORST_LAST.index)
        return worst
