"""Choosing tokens: reproducible, in proportion, and never from a broken row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_svc.sample import NonFiniteLogits, Sampler
from kev.domain.question import Sampling

ROW = np.random.default_rng(5).standard_normal(3000).astype(np.float32)
SETTINGS = [
    Sampling(),
    Sampling(temperature=0.7),
    Sampling(temperature=1.3, top_k=5),
    Sampling(temperature=1.0, top_p=0.6),
    Sampling(temperature=1.0, top_k=40, top_p=0.5),
]


def _draws(sampling: Sampling, row: np.ndarray, count: int, seed: int = 3) -> list[int]:
    sampler = Sampler(sampling, seed)
    return [sampler.pick(row, step) for step in range(count)]


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    row = np.array([0, 2, 1, 2], np.float32)
    assert Sampler(Sampling(), 0).pick(row, 0) == 1
    assert Sampler(Sampling(temperature=1e-9), 0).pick(row, 0) == 1
    assert set(_draws(Sampling(temperature=1.0, top_k=1), row, 20)) == {1}


@pytest.mark.parametrize("sampling", SETTINGS)
def test_the_same_seed_and_step_give_the_same_token(sampling: Sampling) -> None:
    assert _draws(sampling, ROW, 30) == _draws(sampling, ROW.copy(), 30)


def test_a_draw_does_not_depend_on_earlier_draws() -> None:
    sampling = Sampling(temperature=1.0)
    used = Sampler(sampling, 11)
    for step in (3, 0, 99):
        used.pick(ROW, step)
    assert used.pick(ROW, 17) == Sampler(sampling, 11).pick(ROW, 17)


def test_seeds_and_steps_differ() -> None:
    sampling = Sampling(temperature=1.0)
    assert _draws(sampling, ROW, 10, seed=1) != _draws(sampling, ROW, 10, seed=2)
    assert len(set(_draws(sampling, ROW, 50))) > 10
    assert Sampler(sampling, -1).pick(ROW, 0) == Sampler(sampling, 2**64 - 1).pick(ROW, 0)


def test_top_k_keeps_the_largest_and_of_equals_the_lowest() -> None:
    row = np.array([1, 3, 1, 2, 1], np.float32)
    assert set(_draws(Sampling(temperature=5.0, top_k=3), row, 300)) == {0, 1, 3}


def test_top_p_keeps_the_fewest_that_reach_it() -> None:
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05])).astype(np.float32)
    assert set(_draws(Sampling(temperature=1.0, top_p=0.7), row, 300)) == {0, 1}
    assert set(_draws(Sampling(temperature=1.0, top_p=0.001), row, 50)) == {0}


def test_top_p_looks_beyond_its_first_guess() -> None:
    flat = np.zeros(2000, np.float32)
    drawn = set(_draws(Sampling(temperature=1.0, top_p=0.5), flat, 3000))
    assert max(drawn) in range(900, 1001)


@pytest.mark.parametrize("places", [[0, 1, 2], [3, 600, 2999], [511, 512, 1024]])
def test_tokens_come_in_proportion(places: list[int]) -> None:
    share = np.full(3000, 1e-30)
    share[places] = [0.6, 0.3, 0.1]
    drawn = np.bincount(_draws(Sampling(temperature=1.0), np.log(share).astype(np.float32), 3000), minlength=3000)
    assert np.abs(drawn / 3000 - share).max() < 0.04


def test_a_token_of_no_probability_is_never_drawn() -> None:
    row = np.array([-3e38, 0, -3e38], np.float32)
    assert set(_draws(Sampling(temperature=1.0), row, 100)) == {1}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sampling", SETTINGS)
def test_a_row_that_is_not_finite_is_refused(bad: float, sampling: Sampling) -> None:
    row = ROW.copy()
    row[17] = bad
    with pytest.raises(NonFiniteLogits, match="token 4"):
        Sampler(sampling, 0).pick(row, 4)


@given(
    st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=40),
    st.floats(0.01, 5),
    st.integers(0, 45),
    st.floats(0.01, 1),
    st.integers(),
)
def test_any_setting_draws_an_allowed_token(
    values: list[float], temperature: float, top_k: int, top_p: float, seed: int
) -> None:
    row = np.array(values, np.float32)
    token = Sampler(Sampling(temperature, top_k, top_p), seed).pick(row, 0)
    better = sum(value > row[token] for value in row)
    assert better < (top_k or len(row))


def test_min_p_keeps_what_is_likely_enough_against_the_likeliest() -> None:
    row = np.log(np.array([0.5, 0.26, 0.2, 0.04], np.float32))
    assert set(_draws(Sampling(temperature=1.0, min_p=0.5), row, 300)) == {0, 1}
    assert set(_draws(Sampling(temperature=1.0, min_p=1.0), row, 50)) == {0}
    assert set(_draws(Sampling(temperature=1.0, min_p=0.1, top_k=2), row, 300)) == {0, 1}
    assert set(_draws(Sampling(temperature=1.0, min_p=0.01, top_p=0.95), row, 600)) == {0, 1, 2}
    assert set(_draws(Sampling(temperature=2.0, min_p=0.6), row, 600)) == {0, 1, 2}


@given(st.floats(0.001, 1.0), st.sampled_from([0, 3, 40]), st.sampled_from([0.5, 1.0]), st.integers(0, 50))
def test_min_p_never_lets_an_unlikely_token_through(min_p: float, top_k: int, top_p: float, seed: int) -> None:
    row = ROW[seed : seed + 500]
    drawn = Sampler(Sampling(temperature=1.5, min_p=min_p, top_k=top_k, top_p=top_p), seed).pick(row, 0)
    assert (row[drawn] - row.max()) / 1.5 >= np.log(min_p) - 1e-4
