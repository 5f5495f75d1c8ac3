"""A decoder block's arithmetic on rows, and its tensors ready for use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from inference_svc.backends.reference.tiles import multiply
from inference_svc.models.config import ModelConfig
from inference_svc.models.weights import LayerWeights
from inference_svc.rows import Float32Array

_SERIAL = 32768
"""Elements up to which torch runs an elementwise function in one piece."""

_VECTOR = 32
"""Floats in the widest step of torch's vector loops."""


@dataclass(frozen=True, slots=True)
class Precision:
    """How numbers are kept.

    Attributes:
        name: ``fp32`` or ``bf16``.
        storage: Type of K, V, and of every input of a matrix product.
        arithmetic: Type in which products run. On a CPU always float32: bf16
            products are slow there, and products of bf16 values are exact in
            float32 anyway.
    """

    name: str
    storage: torch.dtype
    arithmetic: torch.dtype

    def matrix(self, values: Float32Array, device: torch.device) -> torch.Tensor:
        """A weight, rounded to storage and kept for arithmetic."""
        return torch.from_numpy(values).to(device).to(self.storage).to(self.arithmetic).contiguous()

    def product(self, rows: torch.Tensor, matrix: torch.Tensor, tiles: Sequence[int]) -> torch.Tensor:
        """``rows @ matrix.T`` as float32; rows are rounded to storage first."""
        return multiply(rows.to(self.storage).to(self.arithmetic), matrix, tiles).to(torch.float32)


@dataclass(frozen=True, slots=True)
class Block:
    """One block's tensors; Q, K, V stand in one matrix, and so do gate and up."""

    attn_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor

    @classmethod
    def of(cls, layer: LayerWeights, precision: Precision, device: torch.device) -> Block:
        """Packs one layer's weights."""

        def vector(values: Float32Array | None) -> torch.Tensor | None:
            return None if values is None else torch.from_numpy(values).to(device)

        biases = [bias for bias in (layer.q_bias, layer.k_bias, layer.v_bias) if bias is not None]
        return cls(
            attn_norm=torch.from_numpy(layer.attn_norm).to(device),
            qkv=precision.matrix(np.concatenate([layer.q, layer.k, layer.v]), device),
            qkv_bias=vector(np.concatenate(biases)) if biases else None,
            q_norm=vector(layer.q_norm),
            k_norm=vector(layer.k_norm),
            o=precision.matrix(layer.o, device),
            mlp_norm=torch.from_numpy(layer.mlp_norm).to(device),
            gate_up=precision.matrix(np.concatenate([layer.gate, layer.up]), device),
            down=precision.matrix(layer.down, device),
        )

    @property
    def matrices(self) -> tuple[torch.Tensor, ...]:
        """All matrices of the block."""
        return (self.qkv, self.o, self.gate_up, self.down)


def rms_norm(rows: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm over the last dimension, float32."""
    return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps) * weight


def rotate(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotary positions.

    Args:
        heads: ``[rows, heads, head_dim]``; element ``i`` turns with ``i + head_dim / 2``.
        cosine: ``[rows, 1, head_dim]``, both halves alike.
        sine: ``[rows, 1, head_dim]``, the first half negated.
    """
    return heads * cosine + heads.roll(heads.shape[-1] // 2, -1) * sine


def rotary_tables(inv_freq: Float32Array, positions: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine for ``rotate``, each ``[positions, 1, head_dim]``.

    Built once for all positions: computed per pack, the library's rounding
    could depend on where in the pack a row stands.
    """
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * torch.from_numpy(inv_freq)
    cosine, sine = angles.cos(), angles.sin()
    halves = torch.cat([cosine, cosine], -1), torch.cat([-sine, sine], -1)
    return halves[0][:, None].to(device), halves[1][:, None].to(device)


def gated(gate_up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up``: ``[rows, 2 x intermediate]`` to ``[rows, intermediate]``.

    Torch's vector loop and its leftover elements round SiLU differently, and
    the leftovers move when work is split over threads. So each call is small
    enough to stay in one piece, and whole rows never leave leftovers.
    """
    gate, up = gate_up.chunk(2, dim=-1)
    rows, width = gate.shape
    step = max(1, _SERIAL // width) if width % _VECTOR == 0 else 1
    result = torch.empty_like(gate, memory_format=torch.contiguous_format)
    for start in range(0, rows, step):
        result[start : start + step] = torch.nn.functional.silu(gate[start : start + step].contiguous())
    return result.mul_(up)


def heads_of(qkv: torch.Tensor, config: ModelConfig) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Splits ``[rows, q + k + v]`` into heads: Q, K, V, each ``[rows, its heads, head_dim]``."""
    heads = qkv.view(qkv.shape[0], -1, config.head_dim)
    ends = (config.heads, config.heads + config.kv_heads)
    return heads[:, : ends[0]], heads[:, ends[0] : ends[1]], heads[:, ends[1] :]
