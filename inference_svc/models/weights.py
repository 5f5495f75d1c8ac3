"""A checkpoint's tensors under neutral names, the same for every format and backend."""

from __future__ import annotations

from dataclasses import dataclass

from inference_svc.models.config import ModelConfig
from inference_svc.models.errors import ModelError
from inference_svc.rows import Float32Array

MATRICES = ("q", "k", "v", "o", "gate", "up", "down")
"""The matrices of a block, by field name."""
VECTORS = ("attn_norm", "mlp_norm", "q_bias", "k_bias", "v_bias", "q_norm", "k_norm")
"""What else a block may have."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder block. Matrices are ``[out, in]``, float32, row-major.

    Q and K are in rotate-half order: pair ``i`` of a head is its rows ``i``
    and ``i + head_dim / 2``.

    Attributes:
        attn_norm: RMSNorm before attention, ``[hidden]``.
        q: ``[heads * head_dim, hidden]``.
        k: ``[kv_heads * head_dim, hidden]``.
        v: ``[kv_heads * head_dim, hidden]``.
        o: ``[hidden, heads * head_dim]``.
        mlp_norm: RMSNorm before the MLP, ``[hidden]``.
        gate: ``[intermediate, hidden]``; goes through SiLU.
        up: ``[intermediate, hidden]``.
        down: ``[hidden, intermediate]``.
        q_bias: ``[heads * head_dim]``, with ``qkv_bias`` only.
        k_bias: ``[kv_heads * head_dim]``, with ``qkv_bias`` only.
        v_bias: ``[kv_heads * head_dim]``, with ``qkv_bias`` only.
        q_norm: RMSNorm of each query head, ``[head_dim]``, with ``qk_norm`` only.
        k_norm: RMSNorm of each key head, ``[head_dim]``, with ``qk_norm`` only.
    """

    attn_norm: Float32Array
    q: Float32Array
    k: Float32Array
    v: Float32Array
    o: Float32Array
    mlp_norm: Float32Array
    gate: Float32Array
    up: Float32Array
    down: Float32Array
    q_bias: Float32Array | None = None
    k_bias: Float32Array | None = None
    v_bias: Float32Array | None = None
    q_norm: Float32Array | None = None
    k_norm: Float32Array | None = None

    def vectors(self) -> dict[str, Float32Array]:
        """All that is not a matrix, by field name."""
        found = {name: getattr(self, name) for name in VECTORS}
        return {name: array for name, array in found.items() if array is not None}


@dataclass(frozen=True, slots=True)
class Weights:
    """All tensors of a decoder.

    Attributes:
        embed: Token embedding, ``[vocab, hidden]``.
        layers: The blocks, first to last.
        final_norm: RMSNorm before the head, ``[hidden]``.
        head: ``[vocab, hidden]``, or None when the embedding is the head.
        inv_freq: Rotary angle per position, ``[head_dim / 2]``, scaling included.
    """

    embed: Float32Array
    layers: tuple[LayerWeights, ...]
    final_norm: Float32Array
    head: Float32Array | None
    inv_freq: Float32Array

    @property
    def output(self) -> Float32Array:
        """The head's matrix, tied or not: ``[vocab, hidden]``."""
        return self.embed if self.head is None else self.head


def layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of a block that this config has, by field name."""
    hidden, q, kv, middle = config.hidden, config.q_width, config.kv_width, config.intermediate
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (hidden,),
        "q": (q, hidden),
        "k": (kv, hidden),
        "v": (kv, hidden),
        "o": (hidden, q),
        "mlp_norm": (hidden,),
        "gate": (middle, hidden),
        "up": (middle, hidden),
        "down": (hidden, middle),
    }
    if config.qkv_bias:
        shapes |= {"q_bias": (q,), "k_bias": (kv,), "v_bias": (kv,)}
    if config.qk_norm:
        shapes |= {"q_norm": (config.head_dim,), "k_norm": (config.head_dim,)}
    return shapes


def top_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor outside the blocks that this config has, by field name."""
    shapes: dict[str, tuple[int, ...]] = {"embed": (config.vocab, config.hidden), "final_norm": (config.hidden,)}
    if not config.tied:
        shapes["head"] = (config.vocab, config.hidden)
    return shapes


def check_shape(name: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Refuses a tensor of another shape than the config says."""
    if tuple(found) != expected:
        raise ModelError(f"tensor {name}: shape {list(found)}, the config says {list(expected)}")
