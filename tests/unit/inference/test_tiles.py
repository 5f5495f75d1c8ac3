"""Matrix products in tiles."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inference_svc.backends.reference.tiles import SIZES, TILE, cover, equal_sizes, multiply


@given(st.integers(1, 2000), st.sets(st.sampled_from(SIZES)).map(lambda some: tuple(sorted({*some, TILE}))))
def test_tiles_cover_all_rows_and_waste_less_than_one_tile(rows: int, sizes: tuple[int, ...]) -> None:
    tiles = cover(rows, sizes)
    assert set(tiles) <= set(sizes)
    assert rows <= sum(tiles) < rows + max(sizes)


def test_a_row_has_the_same_bits_in_every_allowed_tile() -> None:
    matrix = torch.randn(192, 96)
    sizes = equal_sizes([matrix], 128)
    assert TILE in sizes
    rows = torch.randn(256, 96)
    expected = multiply(rows, matrix, (TILE,) * 16)
    for count in (1, 3, 20, 77, 256):
        tiles = cover(count, sizes)
        padded = torch.zeros(sum(tiles), 96)
        padded[:count] = rows[:count]
        assert torch.equal(multiply(padded, matrix, tiles)[:count], expected[:count])


@pytest.mark.parametrize("shift", [1, 5, 15])
def test_the_place_in_a_tile_does_not_matter(shift: int) -> None:
    matrix, rows = torch.randn(96, 160), torch.randn(48, 160)
    expected = multiply(rows, matrix, (TILE,) * 3)
    moved = multiply(rows.roll(shift, 0), matrix, (TILE,) * 3)
    assert torch.equal(moved.roll(-shift, 0), expected)
