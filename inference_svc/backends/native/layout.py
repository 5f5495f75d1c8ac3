"""Where every array of a packed model lies.

A pure function of the model's sizes, of how its matrices are packed and of the
kernels' block of columns. So no file is asked where its arrays begin and end:
the kernels are only ever given places that were computed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from inference_svc.backends.native.packing import GROUP
from inference_svc.backends.native.variants import Variant
from inference_svc.models import ModelConfig

ALIGN = 64
"""Every array begins on a cache line."""

GROUP_BYTES = {"int8": GROUP + 2, "codes": GROUP + 8, "nibbles": GROUP // 2 + 4}
"""A group of one column: its numbers, and a bfloat16 scale, or scale and minimum (nibbles: in half precision)."""

_NUMBER_BYTES = {"fp32": 4, "bf16": 2}
_EMBED_BYTES = {"fp32": 4, "codes": 4, "bf16": 2, "int8": 2, "nibbles": 2}


@dataclass(frozen=True, slots=True)
class Layout:
    """Places in one block of memory.

    Attributes:
        offsets: First byte and length in bytes of each array, by name, in their order.
        size: Length of the block: each array is padded to a cache line.
    """

    offsets: dict[str, tuple[int, int]]
    size: int


def layout(config: ModelConfig, form: str, variant: Variant) -> Layout:
    """The layout of a model for a variant's kernels. ``form``: ``fp32``, ``bf16``, ``int8``, ``codes``, ``nibbles``."""
    offsets, end = {}, 0
    for name, size in section_bytes(config, form, variant):
        offsets[name] = (end, size)
        end += padded(size)
    return Layout(offsets, end)


def padded(size: int) -> int:
    """Bytes up to where the next array begins."""
    return -(-size // ALIGN) * ALIGN


def section_bytes(config: ModelConfig, form: str, variant: Variant) -> Iterator[tuple[str, int]]:
    """Name and bytes of each array that ``packing`` yields, in its order. A tied embedding of codes is the head's."""

    def matrix(out: int, depth: int, form: str = form) -> int:
        columns = -(-out // variant.block) * variant.block
        if form in GROUP_BYTES:
            return columns * (depth // GROUP) * GROUP_BYTES[form]
        return columns * depth * _NUMBER_BYTES[form]

    hidden = config.hidden
    if not (form == "codes" and config.tied):
        yield "embed", config.vocab * hidden * _EMBED_BYTES[form]
    yield "head", matrix(config.vocab, hidden, "int8" if form == "nibbles" else form)
    yield "final_norm", 4 * hidden
    yield "inv_freq", 4 * (config.head_dim // 2)
    for index in range(config.layers):
        yield f"{index}.qkv", matrix(config.q_width + 2 * config.kv_width, hidden)
        yield f"{index}.o", matrix(hidden, config.q_width)
        yield f"{index}.gate_up", matrix(2 * config.intermediate, hidden)
        yield f"{index}.down", matrix(hidden, config.intermediate)
        for name, numbers in _vectors(config):
            yield f"{index}.{name}", 4 * numbers


def _vectors(config: ModelConfig) -> Iterator[tuple[str, int]]:
    yield "attn_norm", config.hidden
    yield "mlp_norm", config.hidden
    if config.qkv_bias:
        yield "qkv_bias", config.q_width + 2 * config.kv_width
    if config.qk_norm:
        yield "q_norm", config.head_dim
        yield "k_norm", config.head_dim
