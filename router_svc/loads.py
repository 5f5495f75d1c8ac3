"""How full the queues are, as this router sees it: depths as polled plus its own sends since. Pure.

A send counts from the moment a channel is chosen. It is forgotten only by a
poll that began after the send had arrived, because only then do the polled
depths contain it for certain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kev.bus.messages import Lane


class Loads:
    """The view. Counts are questions.

    Attributes:
        total: Questions in the lanes that count (the ring's members).
        arrived: Own sends that arrived before the last poll began, as counted at the last ``observe``.
    """

    def __init__(self) -> None:
        self.total = 0
        self.arrived = 0
        self._members: frozenset[Lane] = frozenset()
        self._seen: Counter[Lane] = Counter()
        self._placed: Counter[Lane] = Counter()
        self._since: Counter[Lane] = Counter()
        self._before: Counter[Lane] = Counter()

    def of(self, lane: Lane) -> int:
        """Questions in a lane."""
        return self._seen.get(lane, 0)

    def count(self, members: Iterable[Lane]) -> None:
        """Says which lanes count for ``total``."""
        self._members = frozenset(members)
        self._sum()

    def place(self, lane: Lane) -> None:
        """A channel was chosen for a question."""
        self._placed[lane] += 1
        self._add(lane, 1)

    def confirm(self, lanes: Iterable[Lane]) -> None:
        """Placed questions have arrived in their queues."""
        for lane in lanes:
            self._placed[lane] -= 1
            self._since[lane] += 1

    def undo(self, lanes: Iterable[Lane]) -> None:
        """Placed questions did not go in."""
        for lane in lanes:
            self._placed[lane] -= 1
            self._add(lane, -1)

    def refused(self, lane: Lane, bound: int) -> None:
        """The broker said that a lane is full: believed until the next poll."""
        self._add(lane, max(0, bound - self._seen[lane]))

    def mark(self) -> None:
        """A poll begins."""
        self._before, self._since = self._since, Counter()

    def observe(self, depths: Mapping[Lane, int]) -> None:
        """The poll that ``mark`` began has come back."""
        self.arrived = self._before.total()
        self._before = Counter()
        self._placed = +self._placed
        self._seen = Counter(depths) + self._placed + self._since
        self._sum()

    def missed(self) -> None:
        """The poll that ``mark`` began failed: what it would have covered still counts."""
        self._since += self._before
        self._before = Counter()

    def _add(self, lane: Lane, count: int) -> None:
        self._seen[lane] += count
        if lane in self._members:
            self.total += count

    def _sum(self) -> None:
        self.total = sum(self._seen[lane] for lane in self._members)
