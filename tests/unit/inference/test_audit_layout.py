"""Cells are counted as the dense mask would have them, and whatever is wrong in a table is counted as cross."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_svc.audit.layout import Cells, Part, count_cells, digest_of, offsets
from inference_svc.rows import PAGE_SIZE, pages_for

A = Part(0, 1, 20, 3, 1, (4, 5), granted=frozenset({4}))
B = Part(1, 2, 16, 1, 1, (4, 7), granted=frozenset({4}))
C = Part(2, 3, 0, 2, 0, (9,))


def naive(part: Part) -> int:
    """A cell per row and position up to its own."""
    return sum(row + 1 for row in range(part.position, part.end))


def test_granted_cells_are_counted_apart() -> None:
    own = (5 + 6 + 7) + 1 + (1 + 2)
    assert count_cells([A, B, C]) == Cells(own=own, granted=3 * PAGE_SIZE + PAGE_SIZE, cross=0)
    assert offsets([A, B, C]) == [0, 3, 4]


@given(st.integers(0, 200), st.integers(1, 60))
def test_a_lone_part_sees_every_position_up_to_its_own(position: int, count: int) -> None:
    part = Part(3, 1, position, count, 0, tuple(range(pages_for(position + count))))
    assert count_cells([part]) == Cells(own=naive(part))


@pytest.mark.parametrize(
    "wrong",
    [
        replace(C, pages=(5,)),  # another channel's page
        replace(C, pages=(4,)),  # a granted page, but not granted to this one
        replace(C, pages=(4,), granted=frozenset({4})),  # granted, but written
        replace(C, foreign=frozenset({9})),  # a page that the allocator gave to nobody here
        Part(2, 3, 16, 2, 0, (9, 9)),  # the same page twice
    ],
)
def test_one_wrong_page_is_red(wrong: Part) -> None:
    assert count_cells([A, B, C]).cross == 0
    assert count_cells([A, B, wrong]).cross > 0


@given(st.data())
def test_any_page_of_a_neighbour_is_red(data: st.DataObject) -> None:
    """Hypothesis picks the layout and the page that goes wrong."""
    lengths = data.draw(st.lists(st.integers(1, 80), min_size=2, max_size=5))
    parts, page = [], 0
    for channel, length in enumerate(lengths):
        pages = tuple(range(page, page + pages_for(length)))
        page += len(pages)
        position = data.draw(st.integers(0, length - 1))
        parts.append(Part(channel, channel, position, length - position, 0, pages))
    assert count_cells(parts).cross == 0
    at, other = data.draw(st.permutations(range(len(parts))))[:2]
    index = data.draw(st.integers(0, len(parts[at].pages) - 1))
    pages = list(parts[at].pages)
    pages[index] = data.draw(st.sampled_from(parts[other].pages))
    assert count_cells([*parts[:at], replace(parts[at], pages=tuple(pages)), *parts[at + 1 :]]).cross > 0


@pytest.mark.parametrize(
    "changes", [{"channel": 5}, {"position": 15}, {"pages": (10,)}, {"granted": {9}}, {"foreign": {9}}, {"wanted": 1}]
)
def test_the_digest_sees_every_change(changes: dict[str, object]) -> None:
    other = Part(2, 3, 14, 2, 0, (9,))
    changed = {"count": other.end - 15, **changes} if "position" in changes else changes
    assert digest_of([A, other]) != digest_of([A, replace(other, **changed)])  # type: ignore[arg-type]


def test_impossible_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="17 positions are 2 pages"):
        Part(0, 1, 16, 1, 1, (1,))
    with pytest.raises(ValueError, match="impossible rows"):
        Part(0, 1, -1, 1, 1, ())
