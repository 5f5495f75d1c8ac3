"""Packed equals alone, bit for bit, for every family and precision; and the controls go red."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from inference_models import SIZES
from isolation_suite import MIXED, IsolationSuite, prompt_of

from inference_svc.backends.reference import ReferenceBackend
from inference_svc.backends.reference.plan import Group
from inference_svc.verify import Prompt, alone, drive, lane, side_by_side
from inference_svc.verify.checks import neighbour_swap, packed_alone
from inference_svc.verify.report import same_bits

Load = Callable[[str, str], ReferenceBackend]


@pytest.fixture(params=[(family, precision) for family in SIZES for precision in ("fp32", "bf16")], ids="-".join)
def backend(request: pytest.FixtureRequest, tiny_backend: Load) -> ReferenceBackend:
    return tiny_backend(*request.param)


class TestIsolation(IsolationSuite):
    """The whole suite."""


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
    prompts = [prompt_of(31, 16), prompt_of(32, 16)]
    backend.everything = (0, 1, 2, 3)
    assert not packed_alone(backend, prompts).passed
    assert not neighbour_swap(backend, prompts[0], [prompts[1]], [prompt_of(33, 16)]).passed


def test_a_damaged_channel_fails_in_every_logit(tiny_backend: Load) -> None:
    """A swallowed NaN would give finite, wrong logits."""
    backend = tiny_backend("qwen3", "fp32")
    prompt = prompt_of(40, 70)
    drive(backend, [lane(Prompt(prompt.prompt))])
    for page in range(5):
        backend.fill([page], float("nan"))
        logits = drive(backend, [lane(prompt, skip=70)])[0]
        assert np.isnan(logits).all()
        backend.scrub([page])
    assert np.isfinite(alone(backend, prompt)).all()
