"""What every backend must show: packed equals alone, bit for bit; and the controls go red."""

from __future__ import annotations

from typing import Any

import pytest
from inference_models import tokens_of

from inference_svc.verify import CONTROLS, Prompt, self_test
from inference_svc.verify.checks import (
    chunking,
    neighbour_swap,
    packed_alone,
    page_permutation,
    planted_nan,
    shared_prefix,
    stale_pages,
)
from inference_svc.verify.report import Check


def prompt_of(seed: int, length: int, answer: int = 3, scored: int = 64) -> Prompt:
    """A random prompt with a random answer."""
    return Prompt(tokens_of(seed, length), tokens_of(seed + 1000, answer), scored)


MIXED = [prompt_of(seed, length) for seed, length in enumerate((1, 3, 15, 16, 17, 40, 64, 65, 100, 7))]
"""Lengths on both sides of every boundary: page, pair of pages, block of keys, tile."""

PREFIX = tokens_of(77, 130)
WITH_PREFIX = [Prompt(PREFIX + tokens_of(200 + n, n + 1), tokens_of(300 + n, 2), 64) for n in range(3)]


class IsolationSuite:
    """Tests of the fixture ``backend`` of whoever inherits them. It has a method ``fill``."""

    def test_packed_equals_alone(self, backend: Any) -> None:
        _passes(packed_alone(backend, MIXED))

    def test_questions_that_join_later_meet_prompts_and_single_tokens(self, backend: Any) -> None:
        _passes(packed_alone(backend, MIXED, starts=[0, 1, 0, 2, 1, 0, 3, 1, 2, 3]))

    def test_a_neighbour_swap_changes_nothing(self, backend: Any) -> None:
        """The same pack shape with other neighbours, at prefill and at each of eight decode steps."""
        neighbours = [prompt_of(10 + n, 30 + n, answer=8) for n in range(4)]
        others = [prompt_of(50 + n, 30 + n, answer=8) for n in range(4)]
        _passes(neighbour_swap(backend, prompt_of(5, 33, answer=8), neighbours, others))

    def test_chunking_changes_nothing(self, backend: Any) -> None:
        _passes(chunking(backend, prompt_of(6, 90), [1, 5, 16, 17, 64]))

    def test_page_ids_change_nothing(self, backend: Any) -> None:
        _passes(page_permutation(backend, prompt_of(8, 120)))

    def test_a_shared_prefix_changes_nothing(self, backend: Any) -> None:
        _passes(shared_prefix(backend, WITH_PREFIX, [1, 15, 16, 17, 128, 130]))

    def test_a_nan_stays_in_its_channel(self, backend: Any) -> None:
        _passes(planted_nan(backend, MIXED[3:], backend.fill))

    def test_leftovers_of_an_earlier_owner_are_never_read(self, backend: Any) -> None:
        _passes(stale_pages(backend, MIXED, backend.fill))

    @pytest.mark.parametrize("control", CONTROLS, ids=lambda control: str(control.__name__))
    def test_a_fault_turns_the_check_red(self, backend: Any, control: Any) -> None:
        check = control(backend, [prompt_of(seed, 20) for seed in (21, 22, 23)])
        assert not check.passed
        assert "differ" in check.detail

    def test_the_self_test_passes(self, backend: Any) -> None:
        report = self_test(backend)
        assert report.passed, report.failures
        assert report.variant == backend.variant


def _passes(check: Check) -> None:
    assert check.passed, check.detail
