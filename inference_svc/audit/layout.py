"""Who sees which cells in a forward, counted from the page tables that the kernel was handed. Pure.

A cell is a row looking at one stored position. A row at position ``p`` looks
at the ``p + 1`` positions of its channel's table up to its own. Nothing else
decides what a row sees, so counting cells in the tables counts what was seen.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inference_svc.rows import PAGE_SIZE, pages_for


@dataclass(frozen=True, slots=True)
class Part:
    """One channel's rows in a forward.

    Attributes:
        channel: The channel; negative for the computation of a shared prefix.
        run: Number of the run in that channel: a worker never uses one twice.
        position: Position of the first row.
        count: Rows.
        wanted: How many of the last rows gave logits.
        pages: Page ids of the positions ``0 .. position + count - 1``.
        granted: Those of them that others may read, too: a stored prefix or a context pool.
        foreign: Those of them that the page allocator had not given to this channel.
    """

    channel: int
    run: int
    position: int
    count: int
    wanted: int
    pages: tuple[int, ...]
    granted: frozenset[int] = frozenset()
    foreign: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.position < 0 or self.count < 1 or not 0 <= self.wanted <= self.count:
            raise ValueError(f"channel {self.channel}: impossible rows")
        if len(self.pages) != pages_for(self.end):
            raise ValueError(f"channel {self.channel}: {self.end} positions are {pages_for(self.end)} pages")

    @property
    def end(self) -> int:
        """Positions after this forward."""
        return self.position + self.count

    def cells(self, index: int) -> int:
        """Cells that all rows together see in the ``index``-th page."""
        first = index * PAGE_SIZE
        return sum(min(PAGE_SIZE, last + 1 - first) for last in range(max(self.position, first), self.end))

    def writes(self, index: int) -> bool:
        """Whether a row writes into the ``index``-th page."""
        return index >= self.position // PAGE_SIZE


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells by whose they are.

    Attributes:
        own: In pages of the row's channel alone.
        granted: In pages that were granted to several channels.
        cross: In pages of another channel, or of nobody: must be 0.
    """

    own: int = 0
    granted: int = 0
    cross: int = 0


Layout = Sequence[Part]
"""The parts of one forward, in the order of their rows."""


def offsets(layout: Layout) -> list[int]:
    """First row of each part."""
    starts, row = [], 0
    for part in layout:
        starts.append(row)
        row += part.count
    return starts


def wrong_pages(layout: Layout) -> set[tuple[int, int]]:
    """(part, index) of the pages that a row must not see as it stands: see ``Cells.cross``."""
    return set(_wrong(layout, Counter(page for part in layout for page in part.pages)))


def _wrong(layout: Layout, seen: Counter[int]) -> Iterator[tuple[int, int]]:
    private = {page for part in layout for page in part.pages if page not in part.granted}
    for at, part in enumerate(layout):
        twice = Counter(part.pages)
        for index, page in enumerate(part.pages):
            elsewhere = seen[page] > 1 and (page in private or twice[page] > 1)
            written = page in part.granted and part.writes(index)
            if elsewhere or written or page in part.foreign:
                yield at, index


def count_cells(layout: Layout) -> Cells:
    """All cells of a forward."""
    wrong = wrong_pages(layout)
    own = granted = cross = 0
    for at, part in enumerate(layout):
        for index, page in enumerate(part.pages):
            cells = part.cells(index)
            if (at, index) in wrong:
                cross += cells
            elif page in part.granted:
                granted += cells
            else:
                own += cells
    return Cells(own, granted, cross)


def digest_of(layout: Layout) -> str:
    """Digest of everything that decides who sees what: 32 hex digits."""
    facts = [
        [part.channel, part.run, part.position, part.count, part.wanted, part.pages, *map(sorted, _marks(part))]
        for part in layout
    ]
    return hashlib.sha256(json.dumps(facts, separators=(",", ":")).encode()).hexdigest()[:32]


def _marks(part: Part) -> tuple[frozenset[int], frozenset[int]]:
    return part.granted, part.foreign
