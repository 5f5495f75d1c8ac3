"""Figures of a bucketing are shares of pairs and sizes in means."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router_svc.semantic.judge import judged


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), min_size=1, max_size=30))
def test_shares_are_those_of_all_pairs(placed: list[tuple[int, str]]) -> None:
    found = judged([bucket for bucket, _ in placed], 4, [intent for _, intent in placed])
    pairs = list(combinations(placed, 2))
    same = [one[0] == two[0] for one, two in pairs if one[1] == two[1]]
    different = [one[0] == two[0] for one, two in pairs if one[1] != two[1]]
    assert found.same == pytest.approx(sum(same) / max(1, len(same)))
    assert found.different == pytest.approx(sum(different) / max(1, len(different)))


def test_sizes_are_told_in_means_of_all_buckets() -> None:
    found = judged([0, 0, 0, 2], 4)
    assert (found.questions, found.used, found.max_over_mean) == (4, 2, 3.0)
    assert found.same is None
