"""Penalties and bias against a plain reference, token by token."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inference_svc.penalties import Penalties
from kev.domain.question import Sampling

VOCAB = 24
ROWS = st.lists(st.floats(-50, 50, width=32), min_size=VOCAB, max_size=VOCAB)
TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=12)
SAMPLINGS = st.builds(
    Sampling,
    repetition_penalty=st.sampled_from([0.5, 1.0, 1.3, 2.0]),
    presence_penalty=st.sampled_from([-2.0, 0.0, 0.4]),
    frequency_penalty=st.sampled_from([-0.3, 0.0, 2.0]),
    logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100, width=32), max_size=4),
)


def _plain(row: list[float], prompt: list[int], answer: list[int], sampling: Sampling) -> list[float]:
    """What the documentation says, one token at a time."""
    changed = []
    for token, logit in enumerate(row):
        value = float(np.float32(logit))
        if token in prompt or token in answer:
            value = value / sampling.repetition_penalty if value > 0 else value * sampling.repetition_penalty
        value = float(np.float32(value))
        if token in answer:
            value -= answer.count(token) * sampling.frequency_penalty + sampling.presence_penalty
        value = float(np.float32(value)) + sampling.logit_bias.get(token, 0.0)
        changed.append(value)
    return changed


@given(ROWS, TOKENS, TOKENS, SAMPLINGS)
def test_a_row_is_changed_as_the_documentation_says(
    row: list[float], prompt: list[int], answer: list[int], sampling: Sampling
) -> None:
    penalties = Penalties(sampling, np.array(prompt, np.int32), VOCAB)
    for token in answer:
        penalties.add(token)
    given_row = np.array(row, np.float32)
    before = given_row.copy()
    got = penalties.applied(given_row)
    np.testing.assert_array_equal(got, np.array(_plain(row, prompt, answer, sampling), np.float32))
    np.testing.assert_array_equal(given_row, before)


def test_a_row_at_the_edge_of_the_numbers_stays_finite() -> None:
    sampling = Sampling(repetition_penalty=2.0, logit_bias={1: 100.0})
    row = np.array([-3.4e38, 3.4e38, 0.0], np.float32)
    assert np.isfinite(Penalties(sampling, np.array([0, 1], np.int32), 3).applied(row)).all()


def test_ids_beyond_the_row_are_passed_over() -> None:
    penalties = Penalties(Sampling(repetition_penalty=2.0, logit_bias={9: 5.0}), np.array([7], np.int32), 3)
    assert penalties.applied(np.ones(3, np.float32)).tolist() == [1.0, 1.0, 1.0]


def test_a_plain_question_has_none() -> None:
    assert not Penalties.wanted(Sampling(temperature=1.0, min_p=0.5, logprobs=3))
    assert Penalties.wanted(Sampling(logit_bias={0: 1.0}))
