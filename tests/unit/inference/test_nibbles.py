"""int8 that keeps codes of four bits: the file's own weights, and rows rounded in groups of 32."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_lab import TYPES, random_blocks, write
from hypothesis import given
from hypothesis import strategies as st
from inference_models import oracle_logits, tokens_of
from native_support import load, score

from inference_svc.backends.native import NativeUnavailable
from inference_svc.backends.native.packing import pack_nibbles
from inference_svc.backends.native.variants import VARIANTS, Variant, by_name
from inference_svc.models import has_codes, load_codes
from inference_svc.models.codes import GROUP, NIBBLES, Codes, codes_of

pytestmark = pytest.mark.timeout(600)
"""The first test may have to compile the kernels."""


def _codes(name: str, seed: int = 1, rows: int = 40, width: int = 2 * GROUP) -> Codes:
    kind = gguf.GGMLQuantizationType[name]
    return codes_of(random_blocks(rows, width, kind, np.random.default_rng(seed)), kind)


def _exactly(codes: Codes) -> np.ndarray:
    """The numbers that codes stand for, with nothing rounded."""
    grouped = codes.code.reshape(*codes.scale.shape, GROUP).astype(np.float64)
    return grouped * codes.scale[..., None].astype(np.float64) + codes.minimum[..., None]


@pytest.mark.parametrize("name", sorted(NIBBLES))
@given(seed=st.integers(0, 2**32 - 1))
def test_codes_from_zero_on_stand_for_the_same_numbers(name: str, seed: int) -> None:
    codes = _codes(name, seed)
    moved = codes.from_zero()
    assert moved.code.min() >= 0
    assert moved.code.max() <= 15
    assert np.array_equal(_exactly(moved), _exactly(codes))


def test_rows_of_both_types_may_be_joined() -> None:
    joined = Codes.made_of([_codes("Q4_0"), _codes("Q4_1")], np.concatenate)
    assert np.array_equal(_exactly(joined.from_zero()), _exactly(joined))
    assert joined.from_zero().code.min() >= 0


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
@pytest.mark.parametrize("name", sorted(NIBBLES))
def test_every_weight_can_be_read_back(name: str, variant: Variant) -> None:
    """From the layout that the kernels expect: scales, minima, then four bytes of each column at a time."""
    codes = _codes(name)
    packed = pack_nibbles(codes, variant)
    block, groups = variant.block, codes.scale.shape[1]
    blocks = -(-len(codes.code) // block)
    assert packed.shape == (blocks, groups, block * (GROUP // 2 + 4))
    scale, minimum = (
        packed[:, :, first : first + 2 * block].copy().view(np.float16).astype(np.float64) for first in (0, 2 * block)
    )
    bytes_ = packed[:, :, 4 * block :].reshape(blocks, groups, GROUP // 8, block, 4)
    found = np.zeros((blocks * block, groups, GROUP))
    for step in range(GROUP // 8):
        for half, values in enumerate((bytes_[:, :, step] & 15, bytes_[:, :, step] >> 4)):
            numbers = values * scale[..., None] + minimum[..., None]
            first = 8 * step + 4 * half
            found[:, :, first : first + 4] = numbers.transpose(0, 2, 1, 3).reshape(-1, groups, 4)
    assert np.array_equal(found[: len(codes.code)], _exactly(codes))
    assert not found[len(codes.code) :].any()


@pytest.mark.parametrize("kind", TYPES)
def test_a_file_has_them_if_its_blocks_have(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.gguf"
    write(path, kind)
    assert has_codes(path, "int8") is (kind in NIBBLES)
    assert (load_codes(path, "int8") is not None) is (kind in NIBBLES)


@pytest.mark.parametrize(
    ("other", "form"),
    [
        ({"output.weight": "Q6_K", "token_embd.weight": "F16", "blk.1.ffn_up.weight": "Q4_0"}, "nibbles"),
        ({"blk.1.ffn_down.weight": "Q8_0"}, "int8"),
    ],
    ids=["any head", "every block"],
)
def test_one_matrix_without_them_is_enough(tmp_path: Path, other: dict[str, str], form: str) -> None:
    path = tmp_path / "model.gguf"
    write(path, "Q4_1", other=other)
    assert load(path, "int8", pages=8).packed.form == form


@pytest.mark.parametrize("kind", sorted(NIBBLES))
@pytest.mark.parametrize("tied", [False, True])
def test_logits_are_near_those_of_the_reference(tmp_path: Path, kind: str, tied: bool) -> None:
    """All tiles at once: 60 rows; and no farther from it than int8 is that makes its own codes."""
    model = write(tmp_path / "model.gguf", kind, tied=tied)
    tokens = np.array(tokens_of(3, 60), np.int32)
    expected = oracle_logits(model, tokens)
    backend = load(tmp_path / "model.gguf", "int8", threads=2)
    assert backend.packed.form == "nibbles"
    assert np.abs(score(backend, tokens, 60) - expected).mean() < 0.05 * np.abs(expected).mean()


def test_a_scale_that_is_too_large_is_refused_by_name() -> None:
    codes = Codes(np.full((1, 1), 9000.0, np.float32), np.full((1, 1), -0.0, np.float32), np.full((1, 32), -8, np.int8))
    with pytest.raises(NativeUnavailable, match="too large for int8"):
        pack_nibbles(codes, by_name("avx2"))
