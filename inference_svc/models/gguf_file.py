"""The tensors of a GGUF file: the table of them, and their bytes. The metadata is read by ``kev.tokens.gguf_meta``,
which steps over long lists (vocabulary, merges)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from inference_svc.models.codes import Codes, codes_of
from inference_svc.models.dequant import dequantize, readable
from inference_svc.models.errors import ModelError
from inference_svc.models.weights import check_shape
from inference_svc.rows import Float32Array
from kev.tokens.gguf_meta import GgufError, GgufHead, gguf_head

_ALIGNMENT = 32
_MOST = 1 << 20
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of the file.

    Attributes:
        shape: Outermost dimension first.
        kind: How it is quantised.
        offset: First byte, from the start of the file.
        size: Length in bytes.
    """

    shape: tuple[int, ...]
    kind: gguf.GGMLQuantizationType
    offset: int
    size: int


class GgufFile:
    """An open GGUF file.

    Attributes:
        metadata: Keys to values; None for lists longer than 4,096.
        tensors: Names to where they lie.
    """

    def __init__(self, path: Path) -> None:
        try:
            with gguf_head(path, _LONGEST) as head:
                self.metadata: dict[str, Any] = head.metadata
                self.tensors: dict[str, StoredTensor] = dict(_table(head))
        except GgufError as error:
            raise ModelError(str(error)) from None
        self._bytes: npt.NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")

    def tensor(self, name: str) -> Float32Array:
        """One tensor, dequantised to float32.

        Raises:
            ModelError: no such tensor, or a quantisation that cannot be read.
        """
        stored = self._stored(name)
        try:
            values = dequantize(self._rows(stored), stored.kind)
        except NotImplementedError:
            raise ModelError(f"tensor {name}: quantisation {stored.kind.name} is not supported") from None
        return values.reshape(stored.shape)

    def kind(self, name: str) -> str:
        """The name of a tensor's type.

        Raises:
            ModelError: no such tensor.
        """
        return str(self._stored(name).kind.name)

    def codes(self, name: str) -> Codes:
        """One matrix as it is stored. Only where its ``kind`` is in ``codes.CODED``."""
        stored = self._stored(name)
        return codes_of(self._rows(stored), stored.kind)

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Whether ``tensor`` would give this shape; nothing is read.

        Raises:
            ModelError: no such tensor, another shape, or a quantisation that cannot be read.
        """
        stored = self._stored(name)
        check_shape(name, stored.shape, shape)
        if not readable(stored.kind):
            raise ModelError(f"tensor {name}: quantisation {stored.kind.name} is not supported")

    def _stored(self, name: str) -> StoredTensor:
        stored = self.tensors.get(name)
        if stored is None:
            raise ModelError(f"tensor {name} is missing")
        return stored

    def _rows(self, stored: StoredTensor) -> npt.NDArray[np.uint8]:
        return self._bytes[stored.offset : stored.offset + stored.size].reshape(*stored.shape[:-1], -1)


def _table(head: GgufHead) -> Iterator[tuple[str, StoredTensor]]:
    """Where the tensors lie: the table of them, then their bytes, aligned.

    Raises:
        GgufError: impossible counts or places.
    """
    if head.tensors > _MOST:
        raise GgufError("the file is damaged: impossible counts in its header")
    entries = [(head.string().decode("utf-8", "replace"), *_entry(head)) for _ in range(head.tensors)]
    alignment = head.metadata.get("general.alignment", _ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise GgufError(f"the file is damaged: general.alignment must be at least 1, got {alignment!r}")
    start = -(-head.at // alignment) * alignment
    for name, shape, number, offset in entries:
        kind = gguf.GGMLQuantizationType(number)
        block, size = gguf.GGML_QUANT_SIZES[kind]
        length = math.prod(shape) // block * size
        if shape[-1] % block or start + offset + length > len(head.data):
            raise GgufError(f"the file is cut off or damaged: tensor {name} runs past its end")
        yield name, StoredTensor(shape, kind, start + offset, length)


def _entry(head: GgufHead) -> tuple[tuple[int, ...], int, int]:
    dims = head.scalar("I")
    shape = tuple(reversed([head.scalar("Q") for _ in range(dims)]))
    return shape, head.scalar("I"), head.scalar("Q")
