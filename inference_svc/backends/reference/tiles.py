"""Matrix products in tiles of fixed shape.

A library picks its kernel, and with it the order of its sums, by the shape of
the product. So a row multiplied in a pack of 3 rows and the same row in a pack
of 300 may differ in the last bit. Here every product has one of a few row
counts. 16 rows is the definition; another size is used only if, on this
machine and for this matrix's shape, it gave the very bits of 16.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import torch

TILE = 16
"""Rows of the tile that defines the result."""

SIZES = (4, 8, 12, 16, 32, 128)
"""Row counts that are tried."""

_OVERHEAD_ROWS = 8
"""What reading the matrix once costs, in rows of arithmetic. Measured roughly; it only steers speed."""


def cover(rows: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Cheapest tiles for ``rows`` rows: their sum is ``rows`` or more."""
    largest = max(sizes)
    full = max(rows - largest, 0) // largest
    return (largest,) * full + _cover_rest(rows - full * largest, sizes)


@lru_cache(maxsize=1024)
def _cover_rest(rows: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    if rows <= 0:
        return ()
    options: list[tuple[int, ...]] = [(size, *_cover_rest(rows - size, sizes)) for size in sizes]
    best = min(options, key=_cost)
    return tuple(sorted(best, reverse=True))


def _cost(tiles: tuple[int, ...]) -> int:
    return sum(tiles) + _OVERHEAD_ROWS * len(tiles)


def multiply(rows: torch.Tensor, matrix: torch.Tensor, tiles: Sequence[int]) -> torch.Tensor:
    """``rows @ matrix.T`` tile by tile.

    Args:
        rows: ``[sum(tiles), in]``, of the matrix's type.
        matrix: ``[out, in]``.
        tiles: Row counts, from ``cover``.

    Returns:
        ``[sum(tiles), out]``, of the matrix's type.
    """
    result = rows.new_empty(rows.shape[0], matrix.shape[0])
    start = 0
    for size in tiles:
        # The matrix on the left: with few rows that is twice as fast as ``rows @ matrix.T``.
        result[start : start + size] = torch.mm(matrix, rows[start : start + size].t()).t()
        start += size
    return result


def equal_sizes(matrices: Iterable[torch.Tensor], largest: int) -> tuple[int, ...]:
    """Tile sizes up to ``largest`` (a multiple of 16) that give the bits of 16-row tiles for all these matrices.

    A random product shows it: kernels are picked by shape, not by values. 16 is always among them.
    """
    shapes = {tuple(matrix.shape): matrix for matrix in matrices}
    sizes = [size for size in SIZES if size <= largest]
    for matrix in shapes.values():
        rows = _random_rows(largest, matrix)
        expected = multiply(rows, matrix, (TILE,) * (largest // TILE))
        sizes = [size for size in sizes if size == TILE or _gives(expected, rows, matrix, size)]
    return tuple(sizes)


def _gives(expected: torch.Tensor, rows: torch.Tensor, matrix: torch.Tensor, size: int) -> bool:
    count = len(rows) // size
    return torch.equal(multiply(rows[: count * size], matrix, (size,) * count), expected[: count * size])


def _random_rows(count: int, matrix: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, matrix.shape[1], generator=generator).to(matrix)
