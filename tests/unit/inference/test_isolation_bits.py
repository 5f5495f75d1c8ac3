"""Packed equals alone, bit for bit, for every family and precision; and the controls go red."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inference_models import SIZES, tokens_of

from inference_svc.backends.reference import ReferenceBackend
from inference_svc.backends.reference.plan import Group
from inference_svc.verify import CONTROLS, Prompt, alone, drive, lane, self_test, side_by_side
from inference_svc.verify.checks import (
    chunking,
    neighbour_swap,
    packed_alone,
    page_permutation,
    planted_nan,
    shared_prefix,
    stale_pages,
)
from inference_svc.verify.report import same_bits

Load = Callable[[str, str], ReferenceBackend]


def _prompt(seed: int, length: int, answer: int = 3, scored: int = 64) -> Prompt:
    return Prompt(tokens_of(seed, length), tokens_of(seed + 1000, answer), scored)


MIXED = [_prompt(seed, length) for seed, length in enumerate((1, 3, 15, 16, 17, 40, 64, 65, 100, 7))]
"""Lengths on both sides of every boundary: page, block of keys, tile."""

PREFIX = tokens_of(77, 130)
WITH_PREFIX = [Prompt(PREFIX + tokens_of(200 + n, n + 1), tokens_of(300 + n, 2), 64) for n in range(3)]


@pytest.fixture(params=[(family, precision) for family in SIZES for precision in ("fp32", "bf16")], ids="-".join)
def backend(request: pytest.FixtureRequest, tiny_backend: Load) -> ReferenceBackend:
    return tiny_backend(*request.param)


def test_packed_equals_alone(backend: ReferenceBackend) -> None:
    check = packed_alone(backend, MIXED)
    assert check.passed, check.detail


def test_questions_that_join_later_meet_prompts_and_single_tokens(backend: ReferenceBackend) -> None:
    check = packed_alone(backend, MIXED, starts=[0, 1, 0, 2, 1, 0, 3, 1, 2, 3])
    assert check.passed, check.detail


def test_a_neighbour_swap_changes_nothing(backend: ReferenceBackend) -> None:
    """The same pack shape with other neighbours, at prefill and at each of eight decode steps."""
    neighbours = [_prompt(10 + n, 30 + n, answer=8) for n in range(4)]
    others = [_prompt(50 + n, 30 + n, answer=8) for n in range(4)]
    check = neighbour_swap(backend, _prompt(5, 33, answer=8), neighbours, others)
    assert check.passed, check.detail


def test_chunking_changes_nothing(backend: ReferenceBackend) -> None:
    check = chunking(backend, _prompt(6, 90), [1, 5, 16, 17, 64])
    assert check.passed, check.detail


def test_page_ids_change_nothing(backend: ReferenceBackend) -> None:
    check = page_permutation(backend, _prompt(8, 120))
    assert check.passed, check.detail


def test_a_shared_prefix_changes_nothing(backend: ReferenceBackend) -> None:
    check = shared_prefix(backend, WITH_PREFIX, [1, 15, 16, 17, 128, 130])
    assert check.passed, check.detail


def test_a_nan_stays_in_its_channel(backend: ReferenceBackend) -> None:
    check = planted_nan(backend, MIXED[3:], backend.fill)
    assert check.passed, check.detail


def test_leftovers_of_an_earlier_owner_are_never_read(backend: ReferenceBackend) -> None:
    check = stale_pages(backend, MIXED, backend.fill)
    assert check.passed, check.detail


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: str(control.__name__))
def test_a_fault_turns_the_check_red(backend: ReferenceBackend, control: Any) -> None:
    check = control(backend, [_prompt(seed, 20) for seed in (21, 22, 23)])
    assert not check.passed
    assert "differ" in check.detail


def test_the_self_test_passes(backend: ReferenceBackend) -> None:
    report = self_test(backend)
    assert report.passed, report.failures
    assert report.variant == backend.variant


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_the_number_of_threads_changes_nothing(tiny_backend: Load, threads: int) -> None:
    backend, before = tiny_backend("llama", "fp32"), torch.get_num_threads()
    expected = drive(backend, side_by_side(MIXED))
    torch.set_num_threads(threads)
    try:
        found = drive(backend, side_by_side(MIXED))
    finally:
        torch.set_num_threads(before)
    assert all(same_bits(*pair) for pair in zip(expected, found, strict=True))


class _Unmasked(ReferenceBackend):
    """A decoder with the block mask taken out: every row reads every channel's pages of the pack."""

    everything: tuple[int, ...] = ()

    def _attend(self, number: int, queries: torch.Tensor, group: Group) -> torch.Tensor:
        pages = len(self.everything)
        table = torch.tensor([self.everything] * len(group.tables))
        seen = torch.zeros(len(group.rows), 1, 1, pages * 16, dtype=torch.bool)
        return super()._attend(number, queries, Group(group.rows, table, seen, seen[: len(table), 0, 0]))


def test_a_decoder_without_the_mask_is_caught(tiny_dirs: dict[str, Path]) -> None:
    backend = _Unmasked.load(tiny_dirs["llama"], pages=64)
    prompts = [_prompt(31, 16), _prompt(32, 16)]
    backend.everything = (0, 1, 2, 3)
    assert not packed_alone(backend, prompts).passed
    assert not neighbour_swap(backend, prompts[0], [prompts[1]], [_prompt(33, 16)]).passed


def test_a_damaged_channel_fails_in_every_logit(tiny_backend: Load) -> None:
    """A swallowed NaN would give finite, wrong logits."""
    backend = tiny_backend("qwen3", "fp32")
    prompt = _prompt(40, 70)
    drive(backend, [lane(Prompt(prompt.prompt))])
    for page in range(5):
        backend.fill([page], float("nan"))
        logits = drive(backend, [lane(prompt, skip=70)])[0]
        assert np.isnan(logits).all()
        backend.scrub([page])
    assert np.isfinite(alone(backend, prompt)).all()
