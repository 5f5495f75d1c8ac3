"""Reads a decoder from a GGUF file.

GGUF stores Llama's Q and K with the two halves of every head interleaved (for
a rotation of neighbouring elements). Here a rotation pairs element ``i`` with
``i + head_dim / 2``, so these two are put back in order; K has its own number
of heads. Qwen's are stored in rotate-half order already.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from inference_svc.models.codes import CODED, KEPT, Codes, LayerCodes, ModelCodes
from inference_svc.models.config import ModelConfig, RopeScaling
from inference_svc.models.errors import ModelError
from inference_svc.models.gguf_file import GgufFile
from inference_svc.models.refuse import refuse_architecture, refuse_left_over
from inference_svc.models.rope import inverse_frequencies
from inference_svc.models.weights import MATRICES, LayerWeights, Weights, check_shape, layer_shapes, top_shapes
from inference_svc.rows import Float32Array

_FAMILIES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_TOP = {"embed": "token_embd.weight", "final_norm": "output_norm.weight", "head": "output.weight"}
_LAYER = {
    "attn_norm": "attn_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "o": "attn_output.weight",
    "mlp_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
    "q_bias": "attn_q.bias",
    "k_bias": "attn_k.bias",
    "v_bias": "attn_v.bias",
    "q_norm": "attn_q_norm.weight",
    "k_norm": "attn_k_norm.weight",
}
_ROPE_FACTORS = "rope_freqs.weight"

_Array = TypeVar("_Array", bound=np.ndarray[Any, Any])


def load_gguf(path: Path) -> tuple[ModelConfig, Weights]:
    """Reads one GGUF file.

    Raises:
        ModelError: the file is damaged, the architecture is refused, or a
            tensor is missing, misshapen or one too many.
    """
    file = GgufFile(path)
    config = _config(file)
    names = {name: _TOP[name] for name in top_shapes(config)}
    layers = tuple(_layer(file, config, index) for index in range(config.layers))
    top = {field: _tensor(file, stored, top_shapes(config)[field]) for field, stored in names.items()}
    _refuse_left_over(file, config)
    return config, Weights(
        embed=top["embed"],
        layers=layers,
        final_norm=top["final_norm"],
        head=top.get("head"),
        inv_freq=_inverse_frequencies(file, config),
    )


def gguf_codes(path: Path, precision: str) -> ModelCodes | None:
    """What ``load_gguf`` reads, with the matrices as they are stored; None unless the file has codes for a precision.

    Args:
        path: The file.
        precision: One of ``KEPT``.

    Raises:
        ModelError: as ``load_gguf`` would.
    """
    file = GgufFile(path)
    config = _config(file)
    _check(file, config)
    if not _has_codes(file, config, precision):
        return None
    output = _output(config)
    return ModelCodes(
        config=config,
        output=file.codes(output) if precision == "fp32" else file.tensor(output),
        embed=None if config.tied else file.tensor(_TOP["embed"]),
        layers=(_layer_codes(file, config, index) for index in range(config.layers)),
        final_norm=file.tensor(_TOP["final_norm"]),
        inv_freq=_inverse_frequencies(file, config),
    )


def has_gguf_codes(path: Path, precision: str) -> bool:
    """Whether ``gguf_codes`` finds any, for one of ``KEPT``; no tensor is read."""
    file = GgufFile(path)
    return _has_codes(file, _config(file), precision)


def _has_codes(file: GgufFile, config: ModelConfig, precision: str) -> bool:
    names = [f"blk.{index}.{_LAYER[field]}" for index in range(config.layers) for field in MATRICES]
    head = precision != "fp32" or file.kind(_output(config)) in CODED
    return head and all(file.kind(name) in KEPT[precision] for name in names)


def _output(config: ModelConfig) -> str:
    return _TOP["embed" if config.tied else "head"]


def _layer_codes(file: GgufFile, config: ModelConfig, index: int) -> LayerCodes:
    names = {field: f"blk.{index}.{_LAYER[field]}" for field in layer_shapes(config)}
    matrices = {field: file.codes(names[field]) for field in MATRICES}
    vectors = {field: file.tensor(name) for field, name in names.items() if field not in MATRICES}
    for field, heads in _interleaved(config).items():
        matrices[field] = Codes.made_of([matrices[field]], partial(_only_one_turned, heads=heads))
        if f"{field}_bias" in vectors:
            vectors[f"{field}_bias"] = _rotate_half_order(vectors[f"{field}_bias"], heads)
    return LayerCodes(matrices, vectors)


def inspect_gguf(path: Path) -> tuple[ModelConfig, Counter[str]]:
    """Checks all that ``load_gguf`` checks, without reading the tensors.

    Returns:
        The config, and how many tensors are stored in each type.

    Raises:
        ModelError: as ``load_gguf`` would.
    """
    file = GgufFile(path)
    config = _config(file)
    _check(file, config)
    return config, Counter(stored.kind.name for stored in file.tensors.values())


def _check(file: GgufFile, config: ModelConfig) -> None:
    for name, shape in _names(config).items():
        file.check(name, shape)
    _refuse_left_over(file, config)


def _names(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that the config calls for, by the file's name."""
    top = {_TOP[field]: shape for field, shape in top_shapes(config).items()}
    fields = layer_shapes(config).items()
    blocks = {f"blk.{index}.{_LAYER[field]}": shape for index in range(config.layers) for field, shape in fields}
    return top | blocks


def _config(file: GgufFile) -> ModelConfig:
    architecture = str(file.metadata.get("general.architecture", ""))
    if architecture not in _FAMILIES:
        raise refuse_architecture(architecture)
    read = _Reader(file.metadata, architecture)
    if read.optional("expert_count", 0):
        raise ModelError("model is refused: it is a mixture of experts, which is not supported yet")
    heads, hidden = int(read("attention.head_count")), int(read("embedding_length"))
    head_dim = int(read.optional("attention.key_length", hidden // heads))
    _check_heads(read, head_dim)
    family = _FAMILIES[architecture]
    return ModelConfig(
        family=family,
        layers=int(read("block_count")),
        hidden=hidden,
        heads=heads,
        kv_heads=int(read.optional("attention.head_count_kv", heads)),
        head_dim=head_dim,
        intermediate=int(read("feed_forward_length")),
        vocab=_vocab(file),
        rope_theta=float(read.optional("rope.freq_base", 10000.0)),
        norm_eps=float(read("attention.layer_norm_rms_epsilon")),
        tied=_TOP["head"] not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        qk_norm=family == "qwen3",
        max_positions=int(read("context_length")),
        window=read.optional("attention.sliding_window", None) or None,
        rope_scaling=_scaling(read),
        bos_id=file.metadata.get("tokenizer.ggml.bos_token_id"),
        eos_ids=_eos(file.metadata),
    )


class _Reader:
    """Metadata of one architecture, with its prefix."""

    def __init__(self, metadata: dict[str, Any], architecture: str) -> None:
        self._metadata = metadata
        self._prefix = architecture

    def __call__(self, key: str) -> Any:
        value = self.optional(key, None)
        if value is None:
            raise ModelError(f"GGUF metadata: {self._prefix}.{key} is missing")
        return value

    def optional(self, key: str, default: Any) -> Any:
        """The value, or the default; a list is allowed only where all layers are equal."""
        value = self._metadata.get(f"{self._prefix}.{key}", default)
        if isinstance(value, list):
            if any(isinstance(one, list) for one in value):
                raise ModelError(f"GGUF metadata: {self._prefix}.{key} is a list of lists, which is not supported")
            if len(set(value)) != 1:
                raise ModelError(f"GGUF metadata: {self._prefix}.{key} differs between layers, which is not supported")
            return value[0]
        return value


def _check_heads(read: _Reader, head_dim: int) -> None:
    if read.optional("attention.value_length", head_dim) != head_dim:
        raise ModelError("model is refused: keys and values of different width are not supported")
    if read.optional("rope.dimension_count", head_dim) != head_dim:
        raise ModelError("model is refused: rotary positions on a part of the head only are not supported")


def _scaling(read: _Reader) -> RopeScaling | None:
    kind = read.optional("rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind != "linear":
        raise ModelError(
            f"rope scaling {kind!r} is not supported in a GGUF file; allowed: none, linear, llama3 factors"
        )
    return RopeScaling("linear", float(read("rope.scaling.factor")))


def _vocab(file: GgufFile) -> int:
    stored = file.tensors.get(_TOP["embed"])
    if stored is None:
        raise ModelError(f"tensor {_TOP['embed']} is missing")
    return stored.shape[0]


def _eos(metadata: dict[str, Any]) -> tuple[int, ...]:
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    found = [int(metadata[key]) for key in keys if metadata.get(key) is not None]
    return tuple(dict.fromkeys(found))


def _tensor(file: GgufFile, name: str, shape: tuple[int, ...]) -> Float32Array:
    stored = file.tensors.get(name)
    if stored is not None:
        check_shape(name, stored.shape, shape)
    return file.tensor(name)


def _layer(file: GgufFile, config: ModelConfig, index: int) -> LayerWeights:
    fields = {
        field: _tensor(file, f"blk.{index}.{_LAYER[field]}", shape) for field, shape in layer_shapes(config).items()
    }
    for field, heads in _interleaved(config).items():
        for name in {field, f"{field}_bias"} & fields.keys():
            fields[name] = _rotate_half_order(fields[name], heads)
    return LayerWeights(**fields)


def _interleaved(config: ModelConfig) -> dict[str, int]:
    """The matrices whose heads are stored with their halves interleaved, and how many heads they have."""
    return {"q": config.heads, "k": config.kv_heads} if config.family == "llama" else {}


def _rotate_half_order(stored: _Array, heads: int) -> _Array:
    """Undoes GGUF's interleaving: rows ``(pair, half)`` of each head become ``(half, pair)``."""
    rest = stored.shape[1:]
    pairs = stored.reshape(heads, -1, 2, *rest)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(stored.shape)  # type: ignore[return-value]


def _only_one_turned(arrays: list[Any], heads: int) -> Any:
    return _rotate_half_order(arrays[0], heads)


def _inverse_frequencies(file: GgufFile, config: ModelConfig) -> Float32Array:
    plain = inverse_frequencies(config)
    if _ROPE_FACTORS not in file.tensors:
        return plain
    factors = _tensor(file, _ROPE_FACTORS, (config.head_dim // 2,))
    return (plain / factors).astype(np.float32)


def _refuse_left_over(file: GgufFile, config: ModelConfig) -> None:
    refuse_left_over(set(file.tensors) - set(_names(config)) - {_ROPE_FACTORS})
