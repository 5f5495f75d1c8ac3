"""The layout of a GGUF file: metadata, tensor table, and the tensors' bytes.

Long lists in the metadata (vocabulary, merges) are stepped over, not built:
that makes opening a file a matter of milliseconds.

Source of the layout: the GGUF specification, versions 2 and 3, little endian.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from inference_svc.models.dequant import dequantize, readable
from inference_svc.models.errors import ModelError
from inference_svc.models.weights import check_shape
from inference_svc.rows import Float32Array

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_ALIGNMENT = 32
_MOST = 1 << 20
_SHORT = 4096


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
        metadata: Keys to values; lists longer than 4,096 are left out.
        tensors: Names to where they lie.
    """

    def __init__(self, path: Path) -> None:
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, StoredTensor] = {}
        try:
            with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                self._read(_Cursor(data))
            self._bytes: npt.NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")
        except (struct.error, KeyError, ValueError, OverflowError) as error:
            if isinstance(error, ModelError):
                raise ModelError(f"{path.name}: {error}") from None
            raise ModelError(f"{path.name}: the file is cut off or damaged") from error

    def tensor(self, name: str) -> Float32Array:
        """One tensor, dequantised to float32.

        Raises:
            ModelError: no such tensor, or a quantisation that cannot be read.
        """
        stored = self.tensors.get(name)
        if stored is None:
            raise ModelError(f"tensor {name} is missing")
        rows = self._bytes[stored.offset : stored.offset + stored.size].reshape(*stored.shape[:-1], -1)
        try:
            values = dequantize(rows, stored.kind)
        except NotImplementedError:
            raise ModelError(f"tensor {name}: quantisation {stored.kind.name} is not supported") from None
        return values.reshape(stored.shape)

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Whether ``tensor`` would give this shape; nothing is read.

        Raises:
            ModelError: no such tensor, another shape, or a quantisation that cannot be read.
        """
        stored = self.tensors.get(name)
        if stored is None:
            raise ModelError(f"tensor {name} is missing")
        check_shape(name, stored.shape, shape)
        if not readable(stored.kind):
            raise ModelError(f"tensor {name}: quantisation {stored.kind.name} is not supported")

    def _read(self, cursor: _Cursor) -> None:
        if cursor.data[:4] != b"GGUF":
            raise ModelError("not a GGUF file: it does not begin with 'GGUF'")
        cursor.at = 4
        version = cursor.scalar("I")
        if version not in (2, 3):
            raise ModelError(f"GGUF version {version} is not supported; allowed: 2 and 3, little endian")
        tensors, keys = cursor.scalar("Q"), cursor.scalar("Q")
        if max(tensors, keys) > _MOST:
            raise ModelError("the file is damaged: impossible counts in its header")
        for _ in range(keys):
            name = cursor.string()
            self.metadata[name] = cursor.value()
        table = [(cursor.string(), *cursor.tensor()) for _ in range(tensors)]
        self._place(table, cursor.at, len(cursor.data))

    def _place(self, table: list[tuple[str, tuple[int, ...], int, int]], end: int, length: int) -> None:
        alignment = int(self.metadata.get("general.alignment", _ALIGNMENT))
        start = -(-end // alignment) * alignment
        for name, shape, number, offset in table:
            kind = gguf.GGMLQuantizationType(number)
            block, size = gguf.GGML_QUANT_SIZES[kind]
            count = int(np.prod(shape, dtype=np.int64)) // block * size
            if shape[-1] % block or start + offset + count > length:
                raise ModelError(f"the file is cut off or damaged: tensor {name} runs past its end")
            self.tensors[name] = StoredTensor(shape, kind, start + offset, count)


class _Cursor:
    """A place in the mapped file that moves forward as values are read."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self) -> str:
        length = self.scalar("Q")
        if length > len(self.data) - self.at:
            raise ModelError("the file is cut off or damaged: a string runs past its end")
        self.at += length
        return self.data[self.at - length : self.at].decode("utf-8", "replace")

    def value(self) -> Any:
        kind = self.scalar("I")
        if kind == _STRING:
            return self.string()
        return self._array() if kind == _ARRAY else self.scalar(_SCALARS[kind])

    def tensor(self) -> tuple[tuple[int, ...], int, int]:
        dims = self.scalar("I")
        shape = tuple(reversed([self.scalar("Q") for _ in range(dims)]))
        return shape, self.scalar("I"), self.scalar("Q")

    def _array(self) -> list[Any] | None:
        kind, count = self.scalar("I"), self.scalar("Q")
        if kind == _ARRAY:
            raise ModelError("lists of lists in the metadata are not supported")
        if kind == _STRING:
            return self._strings(count)
        width = struct.calcsize("<" + _SCALARS[kind])
        start = self.at
        self.at += width * count
        if count > _SHORT:
            return None
        return list(struct.unpack_from(f"<{count}{_SCALARS[kind]}", self.data, start))

    def _strings(self, count: int) -> list[str] | None:
        if count <= _SHORT:
            return [self.string() for _ in range(count)]
        data, at, unpack = self.data, self.at, struct.Struct("<Q").unpack_from
        for _ in range(count):
            at += 8 + unpack(data, at)[0]
        self.at = at
        return None
