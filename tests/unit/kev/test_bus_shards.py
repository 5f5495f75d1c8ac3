"""Shared lanes over several subjects."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kev.bus.messages import EXPRESS, OVERFLOW, Lane
from kev.bus.nats.shards import by_lane, fill, spread

W0 = Lane("w", 0)
LANES = st.lists(st.sampled_from([EXPRESS, OVERFLOW, W0]), max_size=60)


@given(LANES, st.integers(1, 9), st.integers(0, 8))
def test_spread_is_even_in_every_lane(lanes: list[Lane], count: int, start: int):
    numbers = spread(lanes, count, start % count)
    for lane in (EXPRESS, OVERFLOW):
        used = Counter(number for one, number in zip(lanes, numbers, strict=True) if one == lane)
        assert max(used.values(), default=0) - min((used[n] for n in range(count)), default=0) <= 1
    assert all(number == 0 for one, number in zip(lanes, numbers, strict=True) if one == W0)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=6), st.integers(0, 60))
def test_fill_fits_whenever_there_is_room(depths: list[int], size: int):
    """With a bound of 8 per subject, a set fits if the lane has room for it."""
    known = {(OVERFLOW, number): depth for number, depth in enumerate(depths)}
    numbers = Counter(fill([OVERFLOW] * size, len(depths), known))
    fits = all(depth + numbers[number] <= 8 for number, depth in enumerate(depths))
    assert fits == (sum(depths) + size <= 8 * len(depths))


def test_fill_leaves_channels_alone():
    assert fill([W0, W0], 4, {(W0, 0): 7}) == [0, 0]


def test_depths_of_a_lane_are_the_sum_of_its_subjects():
    assert by_lane([((OVERFLOW, 0), 3), ((OVERFLOW, 5), 4), ((W0, 0), 1)]) == {OVERFLOW: 7, W0: 1}
