"""The long proof on small models: every claim holds on both backends, and a backend with a fault fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from inference_models import tokens_of
from native_support import load

from inference_svc.backends.port import Backend
from inference_svc.backends.reference import ReferenceBackend
from inference_svc.rows import Float32Array, Pack
from inference_svc.verify.cases import answered
from inference_svc.verify.claims import Subject, packed
from inference_svc.verify.damage import Damage, Spot, row_spots, spots
from inference_svc.verify.faults import OneScale
from inference_svc.verify.marks import Mark, choice_of, compare_marks, equal, mark_of
from inference_svc.verify.proof import PREFIX_TOKENS, SHORT, Proof
from inference_svc.verify.report import Check

pytestmark = pytest.mark.timeout(600)
"""The first test may have to compile the kernels."""

SIZE = replace(SHORT, questions=5, steps=4, served_questions=4, served_steps=4, rounds=2, threads=(1, 2))
PROMPTS = [tokens_of(seed, length) for seed, length in enumerate((5, 33, 16, 40, 21))]
KINDS = [("reference", "fp32"), ("reference", "bf16"), ("native", "fp32"), ("native", "bf16"), ("native", "int8")]


class Letters:
    """Token ``t`` is one character; no token ends an answer early but 2."""

    vocab_size = 257
    eos_ids = frozenset({2})

    def token_bytes(self, token: int) -> bytes:
        return chr(0x100 + token).encode()


@pytest.fixture(params=KINDS, ids="-".join)
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def opened(kind: tuple[str, str], save_tiny: Callable[..., Path]) -> Callable[..., Backend]:
    """Loads the tiny model, with a number of threads if one is given."""

    def open_(**settings: Any) -> Backend:
        path, pages = save_tiny("llama"), SIZE.pages(40)
        if kind[0] == "native":
            return load(path, kind[1], pages=pages, **settings)
        return ReferenceBackend.load(path, precision=kind[1], pages=pages, **settings)

    return open_


def test_every_claim_holds_and_every_fault_is_seen(opened: Callable[..., Backend]) -> None:
    backend = opened()

    def run_with(count: int, use: Callable[[Backend], Check]) -> Check:
        try:
            return use(opened(threads=count))
        finally:
            torch.set_num_threads(1)

    tried = Proof(backend, Letters(), PROMPTS, tokens_of(77, PREFIX_TOKENS), SIZE, run_with)  # type: ignore[arg-type]
    found = list(tried.findings())
    assert [finding.check for finding in found if not finding.check.passed] == []
    assert sum(finding.kind == "control" for finding in found) == 4
    assert len(found) == 31


@pytest.fixture(scope="module")
def reference(save_tiny: Callable[..., Path]) -> ReferenceBackend:
    return ReferenceBackend.load(save_tiny("llama"), pages=SIZE.pages(40))


def _packed_on(backend: Backend) -> Check:
    return packed(Subject(backend, answered(backend, PROMPTS, 4), Random(1)))[0]


class _SplitByBatch(ReferenceBackend):
    """A reference backend that adds the hidden layer in two halves when more than two rows are in the forward."""

    many = False

    def forward(self, pack: Pack) -> Float32Array:
        self.many = pack.rows > 2
        return super().forward(pack)

    def _mlp(self, block: Any, rows: torch.Tensor, tiles: tuple[int, ...]) -> torch.Tensor:
        whole = super()._mlp(block, rows, tiles)
        added = whole - rows
        return (rows + added * 0.3) + added * 0.7 if self.many else whole


def test_sums_split_by_the_size_of_the_batch_are_caught(save_tiny: Callable[..., Path]) -> None:
    check = _packed_on(_SplitByBatch.load(save_tiny("llama"), pages=SIZE.pages(40)))
    assert not check.passed
    assert "differ" in check.detail


def test_a_scale_over_the_pack_is_caught(reference: ReferenceBackend) -> None:
    assert _packed_on(reference).passed
    assert not _packed_on(OneScale(reference)).passed


class _Swallows(ReferenceBackend):
    """A backend that turns what is not finite into numbers."""

    def forward(self, pack: Pack) -> Float32Array:
        return np.nan_to_num(super().forward(pack))


def test_a_nan_that_is_swallowed_is_no_pass(save_tiny: Callable[..., Path]) -> None:
    backend = _Swallows.load(save_tiny("llama"), pages=SIZE.pages(40))
    damage = Damage(backend, answered(backend, PROMPTS[:3], 2))
    check = damage.in_kv("v", list(spots(backend, damage.length)))
    assert not check.passed
    assert check.detail.startswith("0 of 3 hit rows wholly lost")


def test_a_nan_that_reaches_a_neighbour_is_no_pass(reference: ReferenceBackend) -> None:
    damage = Damage(reference, answered(reference, PROMPTS[:3], 2))
    calm = damage._calm
    damage._calm = [calm[1], calm[0], calm[2]]
    assert not damage.in_activation(list(row_spots(reference))).passed


def test_a_planted_element_is_one_element(reference: ReferenceBackend) -> None:
    spot = Spot(layer=1, position=3, head=1, element=2)
    reference.scrub(range(reference.pages))
    before = _stored(reference, "k").clone()
    reference.plant_kv("k", layer=spot.layer, page=4, head=spot.head, slot=3, element=spot.element, value=5.0)
    changed = (_stored(reference, "k") != before).nonzero().tolist()
    assert changed == [[1, 4, 3, 2]]
    reference.scrub([4])


def _stored(backend: ReferenceBackend, side: str) -> torch.Tensor:
    return (backend._store._values if side == "v" else backend._store._keys)[1]


def _marks(*rows: Sequence[float]) -> list[Mark]:
    return [mark_of(np.array(row, dtype=np.float32)) for row in rows]


def test_marks_tell_bits_apart() -> None:
    assert _marks([0.0])[0] != _marks([-0.0])[0]
    assert _marks([1.0, 2.0]) == _marks([1.0, 2.0])
    assert not compare_marks("finite", [_marks([np.nan])], [_marks([np.nan])]).passed


def test_a_difference_is_counted_and_placed() -> None:
    check = compare_marks("equal", [_marks([1.0], [2.0]), _marks([3.0])], [_marks([1.0], [2.5]), _marks([3.0])])
    assert check == Check("equal", False, "2 of 3 logit rows equal; questions 0 differ, 0 from row 1 on")
    assert not equal("nothing", "rows", [], []).passed


def test_a_row_that_is_not_finite_has_no_choice() -> None:
    from inference_svc.sample import Sampler
    from kev.domain.question import Sampling

    assert choice_of(np.array([1.0, np.nan], dtype=np.float32), Sampler(Sampling(), 1), 0).token == -1
