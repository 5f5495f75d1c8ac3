"""The native backend: packed equals alone, bit for bit, in every precision; and the controls go red."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inference_models import tokens_of
from native_support import PRECISIONS, load, load_with_defects

from inference_svc.backends.native import NativeBackend
from inference_svc.verify import CONTROLS, Prompt, drive, lane, self_test, side_by_side
from inference_svc.verify.checks import (
    chunking,
    neighbour_swap,
    packed_alone,
    page_permutation,
    shared_prefix,
    stale_pages,
)
from inference_svc.verify.report import same_bits

pytestmark = pytest.mark.timeout(600)
"""The first test may have to compile the kernels."""

SIZES: dict[str, dict[str, Any]] = {"llama": {}, "mistral": {}, "qwen2": {"hidden_size": 224}, "qwen3": {}}
"""qwen2's heads make hidden 224 here, so that int8's groups of 32 fit."""


@pytest.fixture(scope="module")
def tiny(save_tiny: Callable[..., Path]) -> Callable[..., NativeBackend]:
    known: dict[tuple[object, ...], NativeBackend] = {}

    def get(family: str, precision: str, **settings: Any) -> NativeBackend:
        key = (family, precision, *sorted(settings.items()))
        if key not in known:
            known[key] = load(save_tiny(family, **SIZES[family]), precision, **settings)
        return known[key]

    return get


@pytest.fixture(params=[(family, precision) for family in SIZES for precision in PRECISIONS], ids="-".join)
def backend(request: pytest.FixtureRequest, tiny: Callable[..., NativeBackend]) -> NativeBackend:
    return tiny(*request.param)


def _prompt(seed: int, length: int, answer: int = 3, scored: int = 64) -> Prompt:
    return Prompt(tokens_of(seed, length), tokens_of(seed + 1000, answer), scored)


MIXED = [_prompt(seed, length) for seed, length in enumerate((1, 3, 15, 16, 17, 40, 64, 65, 100, 7))]
"""Lengths on both sides of every boundary: page, pair of pages, tile."""


def test_packed_equals_alone(backend: NativeBackend) -> None:
    check = packed_alone(backend, MIXED, starts=[0, 1, 0, 2, 1, 0, 3, 1, 2, 3])
    assert check.passed, check.detail


def test_a_neighbour_swap_changes_nothing(backend: NativeBackend) -> None:
    neighbours = [_prompt(10 + n, 30 + n, answer=8) for n in range(4)]
    others = [_prompt(50 + n, 30 + n, answer=8) for n in range(4)]
    check = neighbour_swap(backend, _prompt(5, 33, answer=8), neighbours, others)
    assert check.passed, check.detail


def test_chunking_changes_nothing(backend: NativeBackend) -> None:
    check = chunking(backend, _prompt(6, 90), [1, 5, 16, 17, 64])
    assert check.passed, check.detail


def test_page_ids_change_nothing(backend: NativeBackend) -> None:
    check = page_permutation(backend, _prompt(8, 120))
    assert check.passed, check.detail


def test_a_shared_prefix_changes_nothing(backend: NativeBackend) -> None:
    prefix = tokens_of(77, 130)
    prompts = [Prompt(prefix + tokens_of(200 + n, n + 1), tokens_of(300 + n, 2), 64) for n in range(3)]
    check = shared_prefix(backend, prompts, [1, 15, 16, 17, 128, 130])
    assert check.passed, check.detail


def test_leftovers_of_an_earlier_owner_are_never_read(backend: NativeBackend) -> None:
    check = stale_pages(backend, MIXED, backend.fill)
    assert check.passed, check.detail


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_the_number_of_threads_changes_nothing(
    tiny: Callable[..., NativeBackend], precision: str, threads: int
) -> None:
    expected = drive(tiny("llama", precision), side_by_side(MIXED))
    found = drive(tiny("llama", precision, threads=threads), side_by_side(MIXED))
    assert all(same_bits(*pair) for pair in zip(expected, found, strict=True))


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: str(control.__name__))
def test_a_fault_turns_the_check_red(backend: NativeBackend, control: Any) -> None:
    check = control(backend, [_prompt(seed, 20) for seed in (21, 22, 23)])
    assert not check.passed
    assert "differ" in check.detail


@pytest.mark.parametrize("precision", PRECISIONS)
def test_kernels_whose_sums_depend_on_other_rows_are_caught(
    save_tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """int8 with a scale over the pack; float32 and bfloat16 with sums split by the size of the batch."""
    backend = load_with_defects(save_tiny("llama"), precision, monkeypatch)
    assert not packed_alone(backend, MIXED).passed


def test_the_self_test_passes(backend: NativeBackend) -> None:
    report = self_test(backend)
    assert report.passed, report.failures
    assert report.variant == backend.variant


def test_a_copied_page_holds_what_the_first_holds(tiny: Callable[..., NativeBackend]) -> None:
    backend, prompt = tiny("llama", "bf16"), _prompt(1, 40)
    whole = drive(backend, side_by_side([prompt]))[0]
    for page in range(prompt.pages):
        backend.copy_page(page, 100 + page)
    backend.scrub(range(100))
    moved = lane(prompt, table=range(100, 100 + prompt.pages), skip=len(prompt.prompt))
    assert same_bits(drive(backend, [moved])[0], whole[len(prompt.prompt) :])
