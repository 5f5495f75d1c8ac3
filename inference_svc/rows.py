"""Rows, spans and packs: what goes into one forward.

A *row* is one token of one channel at one position. A *span* is a run of rows
of one channel at consecutive positions. A *pack* is the list of spans of one
forward. A row sees the positions ``0 .. its own`` of its channel, and nothing
else, through the channel's page table: that rule is the block-diagonal causal
mask. No mask tensor exists outside tests and audit.

``Pack`` owns the order of everything in a forward. Channel, offset and result
row are all derived from it, so that they cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

PAGE_SIZE = 16
"""Positions in one KV page. Pages are aligned: page ``i`` of a channel's table
holds the positions ``16 * i .. 16 * i + 15``."""

Int32Array: TypeAlias = npt.NDArray[np.int32]
Float32Array: TypeAlias = npt.NDArray[np.float32]


def pages_for(positions: int) -> int:
    """How many pages hold ``positions`` positions."""
    return -(-positions // PAGE_SIZE)


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive rows of one channel.

    Attributes:
        channel: The channel's number in this worker; a label for audit and
            errors. The mathematics never reads it.
        tokens: Token ids, int32 ``[count]``, at least one.
        position: Position of the first token (0-based, restarts per channel).
        table: Page ids, int32, at least ``pages_for(position + count)`` long.
            Entry ``i`` covers positions ``16 i .. 16 i + 15``. Pages wholly
            below ``position`` may be shared with other channels; a page that
            this span writes belongs to this channel alone.
        wanted: How many of the span's last rows want logits (0 for a prompt
            chunk that is not the last one, 1 usually, ``count`` for scoring).
    """

    channel: int
    tokens: Int32Array
    position: int
    table: Int32Array
    wanted: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError("span: at least one token")
        if self.position < 0:
            raise ValueError("span: position must not be negative")
        if not 0 <= self.wanted <= self.count:
            raise ValueError(f"span: wanted must be 0..{self.count}, got {self.wanted}")
        if len(self.table) < pages_for(self.end):
            raise ValueError(f"span: {self.end} positions need {pages_for(self.end)} pages, got {len(self.table)}")

    @property
    def count(self) -> int:
        """Rows in this span."""
        return len(self.tokens)

    @property
    def end(self) -> int:
        """Length of the channel's context after this forward."""
        return self.position + self.count


@dataclass(frozen=True, slots=True)
class Pack:
    """The spans of one forward, in order. Row ``r`` of the forward is the
    ``r``-th token of the concatenated spans; result row ``k`` is the ``k``-th
    wanted row in the same order."""

    spans: tuple[Span, ...]

    @classmethod
    def of(cls, spans: Sequence[Span]) -> Pack:
        """Builds a pack; refuses an empty one and two spans of one channel."""
        if not spans:
            raise ValueError("pack: at least one span")
        channels = [span.channel for span in spans]
        if len(set(channels)) != len(channels):
            raise ValueError("pack: one span per channel")
        return cls(tuple(spans))

    @property
    def rows(self) -> int:
        """Rows in the forward."""
        return sum(span.count for span in self.spans)

    def tokens(self) -> Int32Array:
        """Token id of each row, int32 ``[rows]``."""
        return np.concatenate([span.tokens for span in self.spans]).astype(np.int32, copy=False)

    def positions(self) -> Int32Array:
        """Position of each row, int32 ``[rows]``."""
        return np.concatenate([np.arange(s.position, s.end, dtype=np.int32) for s in self.spans])

    def row_offsets(self) -> Int32Array:
        """First row of each span and, last, the number of rows: int32 ``[spans + 1]``."""
        return _offsets(span.count for span in self.spans)

    def wanted_rows(self) -> Int32Array:
        """Row numbers that want logits, ascending: int32 ``[wanted]``."""
        ends = self.row_offsets()[1:]
        runs = [np.arange(end - s.wanted, end, dtype=np.int32) for s, end in zip(self.spans, ends, strict=True)]
        return np.concatenate(runs)

    def result_offsets(self) -> Int32Array:
        """First result row of each span and, last, their number: int32 ``[spans + 1]``."""
        return _offsets(span.wanted for span in self.spans)


def _offsets(counts: Iterable[int]) -> Int32Array:
    """Running sums from 0 on; a plain loop, because a pack is short."""
    return np.array([*accumulate(counts, initial=0)], dtype=np.int32)
