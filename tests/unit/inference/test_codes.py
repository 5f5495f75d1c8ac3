"""Weights kept as the codes of their file: the same numbers, and the same bits of every logit, as written out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf_lab import TYPES, random_blocks, write
from hypothesis import given
from hypothesis import strategies as st
from inference_models import tokens_of
from native_support import load, load_written_out

from inference_svc.backends.native import NativeBackend
from inference_svc.backends.native.packing import form_of, sections
from inference_svc.backends.native.variants import VARIANTS, Variant, choose
from inference_svc.models import has_codes, load_codes, load_weights
from inference_svc.models.codes import CODED, GROUP, Codes, codes_of
from inference_svc.models.dequant import dequantize
from inference_svc.models.weights import MATRICES
from inference_svc.planning import sizes
from inference_svc.rows import Float32Array, Pack, Span

pytestmark = pytest.mark.timeout(600)
"""The first test may have to compile the kernels."""


def _same(one: Float32Array, other: Float32Array) -> bool:
    return bool(np.array_equal(one.view(np.uint32), other.view(np.uint32)))


@pytest.mark.parametrize("name", sorted(CODED))
@given(scale=st.floats(width=16, allow_nan=False, allow_infinity=False), minimum=st.floats(-1e3, 1e3, width=16))
def test_codes_are_the_numbers_that_the_library_reads(name: str, scale: float, minimum: float) -> None:
    kind = gguf.GGMLQuantizationType[name]
    rows = random_blocks(4, 3 * GROUP, kind, np.random.default_rng(1))
    for place, value in zip(range(0, 4, 2), (scale, minimum) if name.endswith("_1") else (scale,), strict=False):
        blocks = rows.reshape(-1, gguf.GGML_QUANT_SIZES[kind][1])
        blocks[1, place : place + 2] = np.array([value], np.float16).view(np.uint8)
    found = codes_of(rows, kind).values()
    assert np.array_equal(found, dequantize(rows, kind))
    assert np.array_equal(found, gguf.dequantize(rows, kind))


@given(st.integers(0, 2**32 - 1))
def test_only_the_sum_of_a_weight_is_rounded(seed: int) -> None:
    """So a fused multiply-add, which rounds once, gives the same: the product needs no more bits than a float has."""
    random = np.random.default_rng(seed)
    scale = random.integers(0, 0x7C00, (8, 1), dtype=np.uint16).view(np.float16).astype(np.float32)
    code = random.integers(-128, 128, (8, GROUP), dtype=np.int8)
    found = Codes(scale, np.zeros_like(scale), code).values().astype(np.float64)
    assert np.array_equal(found, code.astype(np.float64) * scale)


@pytest.mark.parametrize("kind", TYPES)
def test_a_file_has_codes_if_all_its_matrices_have(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.gguf"
    write(path, kind)
    assert has_codes(path) is (kind in CODED)
    assert (load_codes(path) is not None) is (kind in CODED)


def test_directories_have_none(save_tiny: Callable[..., Path]) -> None:
    assert not has_codes(save_tiny("llama"))
    assert load_codes(save_tiny("llama")) is None


def test_every_matrix_is_the_one_that_is_read(coded_model: Path) -> None:
    _, weights = load_weights(coded_model)
    codes = load_codes(coded_model)
    assert codes is not None
    assert _same(codes.output.values(), weights.output)
    for layer, coded in zip(weights.layers, codes.layers, strict=True):
        assert coded.keys() == set(MATRICES)
        assert all(_same(coded[name].values(), getattr(layer, name)) for name in MATRICES)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_packed_codes_are_counted_to_the_byte(coded_model: Path, variant: Variant) -> None:
    config, weights = load_weights(coded_model)
    codes = load_codes(coded_model)
    made = sections(config, weights, "fp32", variant, codes)
    total = sum(array.nbytes for name, array in made if name != "inv_freq")
    assert sizes.native_weights(config, "fp32", variant, coded=True) == total
    assert total < 0.6 * sizes.native_weights(config, "fp32", variant)


def test_a_tied_embedding_is_read_from_the_head(default_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coded = load(default_model, "fp32", pages=8)
    assert coded.packed.form == "codes"
    assert coded.packed.array("embed") is None
    planned = sizes.native_weights(coded.packed.config, "fp32", choose(), coded=True)
    assert planned == coded.packed.weight_bytes - coded.packed.offsets["inv_freq"][1]
    plain = load_written_out(default_model, monkeypatch, pages=8)
    tokens = np.array([0, 1, 49151, *range(1000, 1017)], np.int32)
    pack = Pack.of([Span(0, tokens, 0, np.arange(2, dtype=np.int32), len(tokens))])
    assert _same(coded.forward(pack).copy(), plain.forward(pack).copy())


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_only_float32_keeps_them(coded_model: Path, precision: str) -> None:
    assert form_of(precision, load_codes(coded_model)) == precision
    assert load(coded_model, precision, pages=8).packed.form == precision


@pytest.fixture(params=sorted(CODED))
def both(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[NativeBackend, NativeBackend]:
    """One file, with its codes and with its numbers written out."""
    path = tmp_path / "model.gguf"
    write(path, request.param)
    return load(path, "fp32"), load_written_out(path, monkeypatch)


def _spans(counts: list[int]) -> list[Span]:
    return [
        Span(n, np.array(tokens_of(n, count), np.int32), 0, np.arange(n * 10, n * 10 + 10, dtype=np.int32), count)
        for n, count in enumerate(counts)
    ]


def test_every_logit_has_the_same_bits_as_with_the_numbers_written_out(both: tuple[Any, Any]) -> None:
    """For every size of a tile, for packs that are cut, and for single tokens after them."""
    coded, plain = both
    assert coded.packed.form == "codes"
    for counts in (*([n] for n in range(1, 14)), [1, 1, 1], [40, 1, 7], [130, 129, 65]):
        pack = Pack.of(_spans(counts))
        assert _same(coded.forward(pack).copy(), plain.forward(pack).copy()), counts
