"""Quantised matrices as their file stores them: whole numbers, with a scale and a minimum for each group of 32.

They are the numbers that ``dequant`` gives, bit for bit, for all finite scales:
``scale * code`` has at most 19 bits, so that only the sum is rounded, in a fused
multiply-add as well. Where a type has no minimum it is -0.0, the one number that
changes nothing when it is added, not even the sign of a zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from inference_svc.models.config import ModelConfig
from inference_svc.models.dequant import Bytes, halves
from inference_svc.rows import Float32Array

GROUP = 32
"""Neighbouring inputs that share a scale and a minimum."""

Int8Array = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Codes:
    """A matrix: ``scale * code + minimum``.

    Attributes:
        scale: float32 ``[out, in / 32]``, each with at most 11 bits.
        minimum: float32 ``[out, in / 32]``.
        code: int8 ``[out, in]``.
    """

    scale: Float32Array
    minimum: Float32Array
    code: Int8Array

    def from_zero(self) -> Codes:
        """The same matrix with codes from 0 on. Only where all types are ``NIBBLES``: then the minima are exact."""
        below = (self.code.min(axis=1, keepdims=True) < 0).astype(np.int8) * np.int8(8)
        minimum = np.where(below > 0, self.minimum - np.float32(8) * self.scale, self.minimum)
        return Codes(self.scale, minimum, self.code + below)

    def values(self) -> Float32Array:
        """The matrix, float32 ``[out, in]``."""
        grouped = self.code.reshape(*self.scale.shape, GROUP).astype(np.float32)
        return (grouped * self.scale[..., None] + self.minimum[..., None]).reshape(self.code.shape)

    @staticmethod
    def made_of(parts: Sequence[Codes], how: Callable[[list[Any]], Any]) -> Codes:
        """Matrices made into one: ``how`` gets an array of each of them, and joins or moves its rows."""
        return Codes(
            how([part.scale for part in parts]),
            how([part.minimum for part in parts]),
            how([part.code for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class LayerCodes:
    """What ``LayerWeights`` has, by its names and in its order of outputs."""

    matrices: dict[str, Codes]
    vectors: dict[str, Float32Array]


@dataclass(frozen=True, slots=True)
class ModelCodes:
    """What ``Weights`` has, with the matrices of the blocks as they are stored.

    Attributes:
        output: The head's matrix, tied or not: as it is stored, or for int8 as numbers.
        embed: ``[vocab, hidden]``, None where it is the head's matrix.
        layers: The blocks, first to last; each is read when it is asked for, once.
        final_norm, inv_freq: As in ``Weights``.
    """

    config: ModelConfig
    output: Codes | Float32Array
    embed: Float32Array | None
    layers: Iterator[LayerCodes]
    final_norm: Float32Array
    inv_freq: Float32Array


def codes_of(rows: Bytes, kind: gguf.GGMLQuantizationType) -> Codes:
    """A tensor's codes.

    Args:
        rows: Its bytes, ``[out, bytes per row]``.
        kind: One of ``CODED``.
    """
    _, size = gguf.GGML_QUANT_SIZES[kind]
    scale, minimum, code = _READERS[kind.name](rows.reshape(-1, size))
    groups = (len(rows), -1)
    return Codes(scale.reshape(groups), minimum.reshape(groups), code.reshape(groups))


_Parts = tuple[Float32Array, Float32Array, Int8Array]


def _q8_0(blocks: Bytes) -> _Parts:
    scale = halves(blocks[:, :2])
    return scale, _none(scale), blocks[:, 2:].view(np.int8)


def _q4_0(blocks: Bytes) -> _Parts:
    scale = halves(blocks[:, :2])
    return scale, _none(scale), _nibbles(blocks[:, 2:]) - np.int8(8)


def _q4_1(blocks: Bytes) -> _Parts:
    return halves(blocks[:, :2]), halves(blocks[:, 2:4]), _nibbles(blocks[:, 4:])


def _q5_0(blocks: Bytes) -> _Parts:
    scale = halves(blocks[:, :2])
    return scale, _none(scale), (_nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])) - np.int8(16)


def _q5_1(blocks: Bytes) -> _Parts:
    return halves(blocks[:, :2]), halves(blocks[:, 2:4]), _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])


def _none(scale: Float32Array) -> Float32Array:
    return np.full_like(scale, -0.0)


def _nibbles(packed: Bytes) -> Int8Array:
    """The low halves of 16 bytes, then the high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=1).view(np.int8)


def _fifth_bits(stored: Bytes) -> Int8Array:
    """32 bits, the first value's lowest, as 0 or 16."""
    return np.unpackbits(stored, axis=1, bitorder="little").view(np.int8) << np.int8(4)


_READERS: dict[str, Callable[[Bytes], _Parts]] = {
    "Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1,
}  # fmt: skip

CODED = frozenset(_READERS)
"""Types of tensors that have codes."""

NIBBLES = frozenset({"Q4_0", "Q4_1"})
"""Those whose codes have four bits."""

KEPT = {"fp32": CODED, "int8": NIBBLES}
"""By precision: the types of a block's matrices whose codes it keeps. Others keep none."""
