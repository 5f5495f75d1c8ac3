"""A GGUF file gives the very weights of the safetensors directory it was made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf_lab import ARCHITECTURE, Stored, write_file

from inference_svc.models import LayerWeights, ModelConfig, ModelError, Weights, load_weights
from inference_svc.models.dequant import dequantize
from inference_svc.models.gguf import _LAYER, _TOP


def _interleaved(values: np.ndarray, heads: int) -> np.ndarray:
    """The order in which GGUF files hold Llama's Q and K."""
    return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def _write(path: Path, config: ModelConfig, weights: Weights, **extra: Any) -> None:
    write_file(path, config, _tensors(config, weights), **extra)


def _tensors(config: ModelConfig, weights: Weights) -> Iterator[Stored]:
    for field, name in _TOP.items():
        if (values := getattr(weights, field)) is not None:
            yield name, values, None
    for number, layer in enumerate(weights.layers):
        for field, name in _LAYER.items():
            values = getattr(layer, field)
            if values is None:
                continue
            if ARCHITECTURE[config.family] == "llama" and field in ("q", "k"):
                values = _interleaved(values, config.heads if field == "q" else config.kv_heads)
            yield f"blk.{number}.{name}", np.ascontiguousarray(values), None


@pytest.mark.parametrize("family", ARCHITECTURE)
def test_gguf_and_safetensors_are_the_same_model(tiny_dirs: dict[str, Path], tmp_path: Path, family: str) -> None:
    config, weights = load_weights(tiny_dirs[family])
    _write(tmp_path / "model.gguf", config, weights)
    other, copied = load_weights(tmp_path / "model.gguf")
    assert (other.hidden, other.kv_heads, other.eos_ids, other.qk_norm) == (
        config.hidden,
        config.kv_heads,
        config.eos_ids,
        config.qk_norm,
    )
    assert np.array_equal(weights.output, copied.output)
    for ours, theirs in zip(weights.layers, copied.layers, strict=True):
        for field in fields(LayerWeights):
            left, right = getattr(ours, field.name), getattr(theirs, field.name)
            assert (left is None) == (right is None)
            assert left is None or np.array_equal(left, right), field.name


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"architecture": "mamba"}, "recurrent"),
        ({"architecture": "rwkv7"}, "recurrent"),
        ({"architecture": "qwen3next"}, "recurrent"),
        ({"architecture": "qwen2moe"}, "mixture of experts"),
        ({"architecture": "qwen2vl"}, "images"),
        ({"architecture": "nomic-bert"}, "encoder"),
        ({"llama__expert_count": 8}, "mixture of experts"),
        ({"llama__rope__scaling__type": "yarn"}, "yarn"),
        ({"llama__rope__dimension_count": 8}, "part of the head"),
        ({"general__alignment": 0}, "general.alignment must be at least 1"),
        ({"llama__rope__dimension_count": [4, 8]}, "differs between layers"),
        ({"llama__rope__dimension_count": [[8], [8]]}, "llama.rope.dimension_count is a list of lists"),
    ],
)
def test_refusals(tiny_dirs: dict[str, Path], tmp_path: Path, extra: dict[str, Any], reason: str) -> None:
    _write(tmp_path / "model.gguf", *load_weights(tiny_dirs["llama"]), **extra)
    with pytest.raises(ModelError, match=reason) as caught:
        load_weights(tmp_path / "model.gguf")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [0, 3, 20, 500, 5000, -100])
def test_a_damaged_file_is_a_clear_error(tiny_dirs: dict[str, Path], tmp_path: Path, keep: int) -> None:
    path = tmp_path / "model.gguf"
    _write(path, *load_weights(tiny_dirs["llama"]))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError):
        load_weights(path)


def test_another_file_is_not_a_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(ModelError, match="GGUF"):
        load_weights(path)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "Q4_0", "Q5_0", "F16", "F32", "BF16"])
def test_dequantisation_is_the_librarys(kind: str) -> None:
    number = gguf.GGMLQuantizationType[kind]
    values = np.random.default_rng(3).standard_normal((40, 96)).astype(np.float32)
    stored = np.ascontiguousarray(gguf.quantize(values, number)).view(np.uint8)
    found = dequantize(stored, number)
    assert np.array_equal(found, gguf.dequantize(stored, number))
    assert found.flags.writeable
