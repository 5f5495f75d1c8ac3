"""Weights in the order in which the kernels read them. Pure functions over arrays.

Columns of the result are a matrix's output features. They come in blocks of
``variant.block`` columns, padded with zeros at the end; a block is one run of
memory. See ``linear.h`` for the reader's side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_svc.backends.native.errors import NativeUnavailable
from inference_svc.backends.native.variants import Variant
from inference_svc.models import Codes, LayerWeights, ModelCodes, ModelConfig, Weights
from inference_svc.rows import Float32Array

Array: TypeAlias = npt.NDArray[Any]
Packer: TypeAlias = Callable[[Float32Array, Variant], Array]

GROUP = 32
"""int8 and codes: neighbouring inputs that share a scale."""

_MOST_SHARE = 64
_PIECE = 4096  # whole blocks of every variant

FORMAT = 4
"""Version of the packed arrays, their layout and their file; part of the file's name."""


def to_bf16(x: Float32Array) -> npt.NDArray[np.uint16]:
    """Nearest bfloat16, ties to even. Weights are finite: NaN needs no care here."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _blocks(weight: Array, block: int) -> Array:
    """``[out, in]`` to ``[blocks, block, in]``."""
    short = -len(weight) % block
    padded = np.pad(weight, ((0, short), (0, 0))) if short else weight
    return padded.reshape(-1, block, weight.shape[1])


def pack_fp32(weight: Float32Array, variant: Variant) -> Array:
    """``[blocks, in, block]`` float32."""
    return np.ascontiguousarray(_blocks(weight, variant.block).swapaxes(1, 2))


def pack_bf16(weight: Float32Array, variant: Variant) -> Array:
    """``[blocks, in / 2, block, 2]`` bfloat16 bits: two neighbouring inputs side by side."""
    narrow = to_bf16(_blocks(weight, variant.block))
    return np.ascontiguousarray(narrow.reshape(*narrow.shape[:2], -1, 2).swapaxes(1, 2))


def pack_int8(weight: Float32Array, variant: Variant) -> Array:
    """``[blocks, groups, bytes]``: each group's scales (bfloat16), then its weights.

    A scale is rounded up to bfloat16 before the weights are divided by it, so
    rounding it loses nothing. Weights are ``-127 .. 127``.
    """
    step, lanes = variant.int8_step, variant.lanes
    blocks = _blocks(weight, variant.block)
    grouped = blocks.reshape(*blocks.shape[:2], -1, GROUP)
    bits = ((np.abs(grouped).max(axis=3) / np.float32(127)).view(np.uint32) + 0xFFFF) >> 16
    scale = (bits << 16).view(np.float32)[..., None]
    whole = np.rint(np.divide(grouped, scale, out=np.zeros_like(grouped), where=scale > 0)).astype(np.int8)
    if variant.unsigned_int8:
        whole = whole.view(np.uint8) ^ np.uint8(0x80)
    count, _, groups, _ = grouped.shape
    scales = bits.astype(np.uint16).reshape(count, 2, lanes, groups).transpose(0, 3, 2, 1)
    steps = whole.reshape(count, variant.block, groups, GROUP // step, step).transpose(0, 2, 3, 1, 4)
    return _in_groups(scales, steps)


def pack_codes(codes: Codes, variant: Variant) -> Array:
    """``[blocks, groups, bytes]``: each group's scales and minima (float32), then its codes, ``[32, block]``."""
    scale, minimum, code = (_blocks(array, variant.block) for array in (codes.scale, codes.minimum, codes.code))
    steps = code.reshape(*scale.shape, GROUP).transpose(0, 2, 3, 1)
    return _in_groups(scale.swapaxes(1, 2), minimum.swapaxes(1, 2), steps)


def pack_nibbles(codes: Codes, variant: Variant) -> Array:
    """``[blocks, groups, bytes]``: each group's scales and minima (half precision), then its codes.

    A byte holds a column's codes ``k`` (low half) and ``k + 4`` of eight neighbouring inputs.

    Raises:
        NativeUnavailable: a scale of Q4_0 is so large that eight times of it is no half-precision number.
    """
    codes = codes.from_zero()
    scale, minimum, code = (_blocks(array, variant.block) for array in (codes.scale, codes.minimum, codes.code))
    halves = code.view(np.uint8).reshape(*scale.shape, GROUP // 8, 2, 4)
    steps = (halves[..., 0, :] | halves[..., 1, :] << 4).transpose(0, 2, 3, 1, 4)
    return _in_groups(_exact_halves(scale).swapaxes(1, 2), _exact_halves(minimum).swapaxes(1, 2), steps)


def _in_groups(*parts: Array) -> Array:
    """The bytes of arrays ``[blocks, groups, …]``, one after the other in each group."""
    flat = [np.ascontiguousarray(part).reshape(*part.shape[:2], -1).view(np.uint8) for part in parts]
    return np.concatenate(flat, axis=2)


def _exact_halves(values: Float32Array) -> npt.NDArray[np.float16]:
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16)
    if not np.array_equal(halves.astype(np.float32), values, equal_nan=True):
        raise NativeUnavailable("native: a scale of this file's 4-bit weights is too large for int8; use bf16 or fp32")
    return halves


PACKERS: dict[str, Packer] = {"fp32": pack_fp32, "bf16": pack_bf16, "int8": pack_int8}


def gate_up(gate: Array, up: Array, lanes: int) -> Array:
    """Rows of both in turns of ``lanes``: each block then holds columns that belong together."""
    width = gate.shape[1]
    return np.stack([gate.reshape(-1, lanes, width), up.reshape(-1, lanes, width)], axis=1).reshape(-1, width)


def rotation(inv_freq: Float32Array, positions: int) -> tuple[Float32Array, Float32Array]:
    """Cosines and sines of every position's angles: two float32 ``[positions, head_dim / 2]``."""
    angles = np.arange(positions, dtype=np.float32)[:, None] * inv_freq[None, :].astype(np.float32)
    return np.cos(angles), np.sin(angles)


def check_shape(config: ModelConfig, precision: str) -> None:
    """Refuses, by name, the shapes that the kernels do not have: NativeUnavailable."""
    unit = 32 if precision == "int8" else 16
    widths = {"hidden": config.hidden, "intermediate": config.intermediate, "heads * head_dim": config.q_width}
    for name, value in widths.items():
        if value % unit:
            raise NativeUnavailable(
                f"native: {name} must be a multiple of {unit} for {precision}, this model has {value}"
            )
    if config.head_dim % 16:
        raise NativeUnavailable(f"native: head_dim must be a multiple of 16, this model has {config.head_dim}")
    share = config.heads // config.kv_heads
    if share > _MOST_SHARE:
        raise NativeUnavailable(f"native: at most {_MOST_SHARE} query heads per KV head, this model has {share}")


def form_of(precision: str, coded: bool) -> str:
    """How the matrices are packed: as the precision says, or as the codes that the file has for it (``has_codes``)."""
    return {"fp32": "codes", "int8": "nibbles"}.get(precision, precision) if coded else precision


def sections(config: ModelConfig, weights: Weights, precision: str, variant: Variant) -> Iterator[tuple[str, Array]]:
    """Every array of a packed model, by name, one at a time."""
    check_shape(config, precision)
    pack = PACKERS[precision]
    yield "embed", weights.embed if precision == "fp32" else to_bf16(weights.embed)
    yield "head", pack(weights.output, variant)
    yield "final_norm", weights.final_norm
    yield "inv_freq", weights.inv_freq
    for index, layer in enumerate(weights.layers):
        for name, array in chain(_matrices(layer, pack, variant), _vectors(layer.vectors())):
            yield f"{index}.{name}", array


def coded_sections(codes: ModelCodes, variant: Variant) -> Iterator[tuple[str, Array]]:
    """The same for a precision that keeps the codes of its file.

    For float32 these are ``codes``, and a tied embedding is the head's columns. For int8
    these are ``nibbles``; embedding and head are what they are without them.
    """
    if isinstance(codes.output, Codes):
        pack, check = pack_codes, "fp32"
        if codes.embed is not None:
            yield "embed", codes.embed
        yield "head", pack_codes(codes.output, variant)
    else:
        pack, check = pack_nibbles, "int8"
        yield "embed", _in_pieces(to_bf16, codes.output if codes.embed is None else codes.embed)
        yield "head", _in_pieces(partial(pack_int8, variant=variant), codes.output)
    check_shape(codes.config, check)
    yield "final_norm", codes.final_norm
    yield "inv_freq", codes.inv_freq
    for index, layer in enumerate(codes.layers):
        for name, array in chain(_coded_matrices(layer.matrices, pack, variant), _vectors(layer.vectors)):
            yield f"{index}.{name}", array


def _in_pieces(pack: Callable[[Float32Array], Array], rows: Float32Array) -> Array:
    """What ``pack`` makes of all rows, from some at a time: what it needs meanwhile stays small."""
    return np.concatenate([pack(rows[first : first + _PIECE]) for first in range(0, len(rows), _PIECE)])


def _matrices(layer: LayerWeights, pack: Packer, variant: Variant) -> Iterator[tuple[str, Array]]:
    yield "qkv", pack(np.concatenate([layer.q, layer.k, layer.v]), variant)
    yield "o", pack(layer.o, variant)
    yield "gate_up", pack(gate_up(layer.gate, layer.up, variant.lanes), variant)
    yield "down", pack(layer.down, variant)


def _coded_matrices(
    layer: Mapping[str, Codes], pack: Callable[[Codes, Variant], Array], variant: Variant
) -> Iterator[tuple[str, Array]]:
    def turned(both: list[Array]) -> Array:
        return gate_up(both[0], both[1], variant.lanes)

    yield "qkv", pack(Codes.made_of([layer["q"], layer["k"], layer["v"]], np.concatenate), variant)
    yield "o", pack(layer["o"], variant)
    yield "gate_up", pack(Codes.made_of([layer["gate"], layer["up"]], turned), variant)
    yield "down", pack(layer["down"], variant)


def _vectors(layer: Mapping[str, Float32Array]) -> Iterator[tuple[str, Array]]:
    yield "attn_norm", layer["attn_norm"]
    yield "mlp_norm", layer["mlp_norm"]
    if "q_bias" in layer:
        yield "qkv_bias", np.concatenate([layer["q_bias"], layer["k_bias"], layer["v_bias"]])
    if "q_norm" in layer:
        yield "q_norm", layer["q_norm"]
        yield "k_norm", layer["k_norm"]
