"""Weights kept as the codes of their file: the same numbers, and the same bits of every logit, as written out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf_lab import TYPES, random_blocks, write
from hypothesis import example, given
from hypothesis import strategies as st
from inference_models import tokens_of
from native_support import load, load_written_out

from inference_svc.backends.native import NativeBackend, packed
from inference_svc.backends.native.packing import coded_sections
from inference_svc.backends.native.variants import VARIANTS, Variant, choose
from inference_svc.models import has_codes, load_codes, load_weights
from inference_svc.models.codes import CODED, GROUP, Codes, codes_of
from inference_svc.models.dequant import dequantize
from inference_svc.models.weights import MATRICES
from inference_svc.planning import sizes
from inference_svc.rows import Pack, Span
from inference_svc.verify.report import same_bits

pytestmark = pytest.mark.timeout(600)
"""The first test may have to compile the kernels."""


@pytest.mark.parametrize("name", sorted(CODED))
@given(scale=st.floats(width=16, allow_nan=False, allow_infinity=False), minimum=st.floats(-1e3, 1e3, width=16))
@example(scale=-0.5, minimum=-0.0)
def test_codes_are_the_numbers_that_the_library_reads(name: str, scale: float, minimum: float) -> None:
    kind = gguf.GGMLQuantizationType[name]
    rows = random_blocks(4, 3 * GROUP, kind, np.random.default_rng(1))
    for place, value in zip(range(0, 4, 2), (scale, minimum) if name.endswith("_1") else (scale,), strict=False):
        blocks = rows.reshape(-1, gguf.GGML_QUANT_SIZES[kind][1])
        blocks[1, place : place + 2] = np.array([value], np.float16).view(np.uint8)
        blocks[2] = _zeros(name, np.float16(value), blocks[2])
    found = codes_of(rows, kind).values()
    assert same_bits(found, dequantize(rows, kind))
    assert same_bits(found, gguf.dequantize(rows, kind))


def _zeros(name: str, scale: np.float16, block: Any) -> Any:
    """A block of codes that stand for 0: with a negative scale these are minus zeros."""
    whole = np.zeros_like(block)
    whole[:2] = np.array([scale]).view(np.uint8)
    if name == "Q4_0":
        whole[2:] = 0x88
    if name == "Q5_0":
        whole[2:6] = 0xFF
    return whole


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
    assert has_codes(path, "fp32") is (kind in CODED)
    assert (load_codes(path, "fp32") is not None) is (kind in CODED)


@pytest.mark.parametrize(
    ("other", "coded"),
    [
        ({"blk.1.ffn_down.weight": "Q8_0", "output.weight": "Q5_1"}, True),
        ({"token_embd.weight": "F16"}, True),
        ({"blk.1.ffn_down.weight": "F16"}, False),
        ({"output.weight": "Q6_K"}, False),
    ],
    ids=["a mix", "an embedding of its own", "a matrix", "the head"],
)
def test_one_matrix_without_codes_is_enough(tmp_path: Path, other: dict[str, str], coded: bool) -> None:
    path = tmp_path / "model.gguf"
    write(path, "Q4_1", other=other)
    assert has_codes(path, "fp32") is coded
    assert load(path, "fp32", pages=8).packed.form == ("codes" if coded else "fp32")


def test_directories_have_none(save_tiny: Callable[..., Path]) -> None:
    assert not has_codes(save_tiny("llama"), "fp32")
    assert load_codes(save_tiny("llama"), "fp32") is None


@pytest.mark.parametrize("kind", sorted(CODED))
def test_every_matrix_is_the_one_that_is_read(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "model.gguf", kind)
    _, weights = load_weights(tmp_path / "model.gguf")
    codes = load_codes(tmp_path / "model.gguf", "fp32")
    assert codes is not None
    assert same_bits(codes.output.values(), weights.output)
    assert codes.embed is not None
    assert same_bits(codes.embed, weights.embed)
    assert same_bits(codes.final_norm, weights.final_norm)
    assert same_bits(codes.inv_freq, weights.inv_freq)
    for layer, coded in zip(weights.layers, codes.layers, strict=True):
        assert coded.matrices.keys() == set(MATRICES)
        assert all(same_bits(coded.matrices[name].values(), getattr(layer, name)) for name in MATRICES)
        assert coded.vectors.keys() == layer.vectors().keys()
        assert all(same_bits(coded.vectors[name], array) for name, array in layer.vectors().items())


TIED = {False: "a head of its own", True: "tied"}


@pytest.fixture(params=TIED, ids=TIED.values())
def some_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write(tmp_path / "model.gguf", "Q4_1", tied=request.param)
    return tmp_path / "model.gguf"


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
@pytest.mark.parametrize("tied", TIED, ids=TIED.values())
@pytest.mark.parametrize(("precision", "kind", "share"), [("fp32", "Q4_1", 0.6), ("int8", "Q4_0", 1.0)])
def test_packed_codes_are_counted_to_the_byte(
    tmp_path: Path, precision: str, kind: str, share: float, tied: bool, variant: Variant
) -> None:
    write(tmp_path / "model.gguf", kind, tied=tied)
    codes = load_codes(tmp_path / "model.gguf", precision)
    assert codes is not None
    total = sum(array.nbytes for name, array in coded_sections(codes, variant) if name != "inv_freq")
    assert sizes.native_weights(codes.config, precision, variant, coded=True) == total
    assert total < share * sizes.native_weights(codes.config, precision, variant)


def test_they_are_packed_one_matrix_at_a_time(some_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No matrix is ever written out as numbers; what is read at a time is counted."""
    monkeypatch.setattr(packed, "load_weights", None)
    codes = load_codes(some_file, "fp32")
    assert codes is not None

    def size(*matrices: Codes) -> int:
        return sum(matrix.scale.nbytes + matrix.minimum.nbytes + matrix.code.nbytes for matrix in matrices)

    block = next(codes.layers).matrices
    largest = size(codes.output, *block.values(), *[block["gate"], block["up"]] * 2)
    assert sizes.packing_work(codes.config, "fp32", coded=True) == pytest.approx(largest, rel=0.01)
    assert packed.open_packed(some_file, "fp32", choose()).form == "codes"


def _all_tokens_alike(path: Path, monkeypatch: pytest.MonkeyPatch, tokens: Any) -> None:
    coded = load(path, "fp32", pages=20)
    assert coded.packed.form == "codes"
    assert coded.packed.array("embed") is None
    plain = load_written_out(path, monkeypatch, pages=20)
    pack = Pack.of([Span(0, np.array(tokens, np.int32), 0, np.arange(20, dtype=np.int32), len(tokens))])
    assert same_bits(coded.forward(pack).copy(), plain.forward(pack).copy())


def test_a_tied_embedding_is_read_from_the_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "model.gguf", "Q5_0", tied=True)
    _all_tokens_alike(tmp_path / "model.gguf", monkeypatch, range(257))  # the last block has one column


@pytest.mark.model
def test_the_default_model_too(default_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _all_tokens_alike(default_model, monkeypatch, [0, 1, 49151, *range(1000, 1017)])


def test_bfloat16_does_not_keep_them(coded_model: Path) -> None:
    assert not has_codes(coded_model, "bf16")
    assert load_codes(coded_model, "bf16") is None
    assert load(coded_model, "bf16", pages=8).packed.form == "bf16"


@pytest.fixture(params=[(kind, threads) for kind in sorted(CODED) for threads in (1, 3)], ids=str)
def both(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[NativeBackend, NativeBackend]:
    """One file, with its codes and with its numbers written out."""
    path, (kind, threads) = tmp_path / "model.gguf", request.param
    write(path, kind)
    return load(path, "fp32", threads=threads), load_written_out(path, monkeypatch)


def _packs(counts: list[int]) -> list[Pack]:
    """Texts of so many tokens, and a token more for each of them."""
    tables = [np.arange(n * 10, n * 10 + 10, dtype=np.int32) for n in range(len(counts))]
    texts = [np.array(tokens_of(n, count), np.int32) for n, count in enumerate(counts)]
    return [
        Pack.of(
            [Span(n, text, 0, table, len(text)) for n, (text, table) in enumerate(zip(texts, tables, strict=True))]
        ),
        Pack.of([Span(n, texts[n][:1], len(texts[n]), table, 1) for n, table in enumerate(tables)]),
    ]


def test_every_logit_has_the_same_bits_as_with_the_numbers_written_out(both: tuple[Any, Any]) -> None:
    """For every size of a tile, for packs that are cut into several, and for single tokens after each."""
    coded, plain = both
    assert coded.packed.form == "codes"
    for counts in (*([n] for n in range(1, 14)), [1] * 9, [40, 1, 7], [130, 129, 65]):
        for pack in _packs(counts):
            assert same_bits(coded.forward(pack).copy(), plain.forward(pack).copy()), counts
