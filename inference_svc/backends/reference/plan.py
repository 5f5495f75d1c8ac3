"""Groups the rows of a pack for attention.

A row at position ``p`` reads the positions ``0 .. p``, padded to whole blocks
of 64. So the shape of its sums is a function of ``p`` alone, and rows with the
same number of blocks can be computed side by side.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from inference_svc.rows import PAGE_SIZE, Pack, Span

BLOCK_PAGES = 4
"""Pages in one block of keys."""

BLOCK = BLOCK_PAGES * PAGE_SIZE
"""Positions in one block of keys."""

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that read the same number of blocks.

    Either every row has its own table (``tables`` and ``rows`` are equally
    long), or all rows are of one span and share the only table.

    Attributes:
        rows: Row numbers in the forward, int64 ``[rows]``.
        tables: Page ids, int64 ``[tables, pages]``, padded with the page of zeros.
        hidden: Which positions a row must not see, bool ``[rows, 1, 1, positions]``.
        unwritten: Which positions of a table hold nothing of this context yet,
            bool ``[tables, positions]``.
    """

    rows: torch.Tensor
    tables: torch.Tensor
    hidden: torch.Tensor
    unwritten: torch.Tensor

    @property
    def positions(self) -> int:
        """Positions read, padding included."""
        return self.unwritten.shape[1]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about a pack that the layers need, worked out once.

    Attributes:
        tokens: int64 ``[rows]``.
        positions: int64 ``[rows]``.
        write_pages: Page that takes K and V of each row, int64 ``[rows]``.
        write_places: Place in that page, int64 ``[rows]``.
        groups: Every row is in exactly one group.
        wanted: Row numbers that want logits, int64 ``[wanted]``.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    write_pages: torch.Tensor
    write_places: torch.Tensor
    groups: tuple[Group, ...]
    wanted: torch.Tensor


def plan(pack: Pack, zero_page: int, device: torch.device) -> Plan:
    """Works out the plan of a pack.

    Args:
        pack: The spans of the forward.
        zero_page: Page id that pads tables; it holds zeros and belongs to nobody.
        device: Where the tensors go.
    """
    positions = pack.positions().astype(np.int64)
    pages = [span.table[np.arange(span.position, span.end) // PAGE_SIZE] for span in pack.spans]
    return Plan(
        tokens=_tensor(pack.tokens(), device),
        positions=_tensor(positions, device),
        write_pages=_tensor(np.concatenate(pages), device),
        write_places=_tensor(positions % PAGE_SIZE, device),
        groups=tuple(_groups(pack, zero_page, device)),
        wanted=_tensor(pack.wanted_rows(), device),
    )


def _groups(pack: Pack, zero_page: int, device: torch.device) -> list[Group]:
    lone: dict[int, list[tuple[int, int, Span]]] = defaultdict(list)
    groups = []
    for span, first in zip(pack.spans, pack.row_offsets(), strict=False):
        blocks = np.arange(span.position, span.end) // BLOCK
        for block in np.unique(blocks):
            inside = np.flatnonzero(blocks == block)
            rows, positions = int(first) + inside, span.position + inside
            if len(rows) == 1:
                lone[int(block)].append((int(rows[0]), int(positions[0]), span))
            else:
                groups.append(_group(rows, positions, [span], int(block), zero_page, device))
    for block, members in sorted(lone.items()):
        numbers, places, spans = zip(*members, strict=True)
        groups.append(_group(np.array(numbers), np.array(places), list(spans), block, zero_page, device))
    return groups


def _group(
    rows: Int64Array, positions: Int64Array, spans: list[Span], block: int, zero_page: int, device: torch.device
) -> Group:
    pages = (block + 1) * BLOCK_PAGES
    tables = np.full((len(spans), pages), zero_page, dtype=np.int64)
    for table, span in zip(tables, spans, strict=True):
        used = min(pages, -(-span.end // PAGE_SIZE))
        table[:used] = span.table[:used]
    columns = np.arange(pages * PAGE_SIZE)
    ends = np.array([span.end for span in spans])
    return Group(
        rows=_tensor(rows, device),
        tables=_tensor(tables, device),
        hidden=torch.from_numpy(columns > positions[:, None]).to(device)[:, None, None, :],
        unwritten=torch.from_numpy(columns >= ends[:, None]).to(device),
    )


def _tensor(values: npt.NDArray[np.int32] | Int64Array, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.int64)).to(device)
