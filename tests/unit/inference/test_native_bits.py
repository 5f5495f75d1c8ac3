"""The native backend: packed equals alone, bit for bit, in every precision; and the controls go red."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from isolation_suite import MIXED, IsolationSuite, prompt_of
from native_support import PRECISIONS, load, load_with_defects

from inference_svc.backends.native import NativeBackend
from inference_svc.verify import drive, lane, side_by_side
from inference_svc.verify.checks import packed_alone
from inference_svc.verify.report import same_bits

pytestmark = pytest.mark.timeout(600)
"""The first test may have to compile the kernels."""

SIZES: dict[str, dict[str, Any]] = {"llama": {}, "mistral": {}, "qwen2": {"hidden_size": 224}, "qwen3": {}}
"""qwen2's heads make hidden 224 here, so that int8's groups of 32 fit."""
CODED = "coded"
"""Not a family: a GGUF file whose codes float32 and int8 keep."""


@pytest.fixture(scope="module")
def tiny(save_tiny: Callable[..., Path], coded_model: Path) -> Callable[..., NativeBackend]:
    known: dict[tuple[object, ...], NativeBackend] = {}

    def get(family: str, precision: str, **settings: Any) -> NativeBackend:
        key = (family, precision, *sorted(settings.items()))
        if key not in known:
            path = coded_model if family == CODED else save_tiny(family, **SIZES[family])
            known[key] = load(path, precision, **settings)
        return known[key]

    return get


@pytest.fixture(
    params=[(family, precision) for family in SIZES for precision in PRECISIONS] + [(CODED, "fp32"), (CODED, "int8")],
    ids="-".join,
)
def backend(request: pytest.FixtureRequest, tiny: Callable[..., NativeBackend]) -> NativeBackend:
    return tiny(*request.param)


class TestIsolation(IsolationSuite):
    """The whole suite."""


@pytest.mark.parametrize(
    ("family", "precision"), [*(("llama", name) for name in PRECISIONS), (CODED, "fp32"), (CODED, "int8")]
)
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_the_number_of_threads_changes_nothing(
    tiny: Callable[..., NativeBackend], family: str, precision: str, threads: int
) -> None:
    expected = drive(tiny(family, precision), side_by_side(MIXED))
    found = drive(tiny(family, precision, threads=threads), side_by_side(MIXED))
    assert all(same_bits(*pair) for pair in zip(expected, found, strict=True))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_kernels_whose_sums_depend_on_other_rows_are_caught(
    save_tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """int8 with a scale over the pack; float32 and bfloat16 with sums split by the size of the batch."""
    backend = load_with_defects(save_tiny("llama"), precision, monkeypatch)
    assert not packed_alone(backend, MIXED).passed


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_they_are_caught_with_codes_too(coded_model: Path, monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    assert not packed_alone(load_with_defects(coded_model, precision, monkeypatch), MIXED).passed


def test_a_copied_page_holds_what_the_first_holds(tiny: Callable[..., NativeBackend]) -> None:
    backend, prompt = tiny("llama", "bf16"), prompt_of(1, 40)
    whole = drive(backend, side_by_side([prompt]))[0]
    for page in range(prompt.pages):
        backend.copy_page(page, 100 + page)
    backend.scrub(range(100))
    moved = lane(prompt, table=range(100, 100 + prompt.pages), skip=len(prompt.prompt))
    assert same_bits(drive(backend, [moved])[0], whole[len(prompt.prompt) :])
