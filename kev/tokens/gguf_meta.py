"""The key-value part of a GGUF file, read on its own.

The tensors are not touched: a router needs only the vocabulary, and gets it in a fraction of a second.
Source of the layout: the GGUF specification, versions 2 and 3, little endian.
"""

import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_KEYS = 65_536


class GgufError(ValueError):
    """The file is not a GGUF file that Kev can read; the text says what is wrong."""


class _Cursor:
    """A place in the mapped file, moving forward as values are read."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self) -> bytes:
        length = self.scalar("Q")
        if length > len(self.data) - self.at:
            raise GgufError("the file is cut off or damaged: a string runs past its end")
        self.at += length
        return self.data[self.at - length : self.at]

    def strings(self, count: int) -> list[bytes]:
        data, at, out = self.data, self.at, []
        unpack = struct.Struct("<Q").unpack_from
        for _ in range(count):
            (length,) = unpack(data, at)
            at += 8 + length
            out.append(data[at - length : at])
        if at > len(data):
            raise GgufError("the file is cut off or damaged: a list of strings runs past its end")
        self.at = at
        return out

    def array(self) -> list[Any]:
        kind, count = self.scalar("I"), self.scalar("Q")
        if count > len(self.data):
            raise GgufError("the file is cut off or damaged: a list is longer than the file")
        if kind == _STRING:
            return self.strings(count)
        if kind == _ARRAY:
            return [self.array() for _ in range(count)]
        dtype = np.dtype("<" + _SCALARS[kind])
        values = np.frombuffer(self.data, dtype, count, self.at).tolist()
        self.at += dtype.itemsize * count
        return list(values)

    def value(self) -> Any:
        kind = self.scalar("I")
        if kind == _STRING:
            return self.string().decode("utf-8", "replace")
        return self.array() if kind == _ARRAY else self.scalar(_SCALARS[kind])


def read_metadata(path: Path) -> dict[str, Any]:
    """All key-value pairs of a GGUF file, in file order.

    Strings come as `str`; lists of strings as lists of **bytes** (vocabulary pieces need not be valid UTF-8);
    numbers and lists of numbers as they are.

    Raises:
        GgufError: not a GGUF file, an unknown version, or damaged.
    """
    with path.open("rb") as file:
        if path.stat().st_size < 24:
            raise GgufError(f"{path.name} is not a GGUF file: too short")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _read(_Cursor(data), path.name)
            except (struct.error, LookupError, ValueError, ArithmeticError, MemoryError, RecursionError) as error:
                if isinstance(error, GgufError):
                    raise
                raise GgufError(f"{path.name} is damaged: its metadata cannot be read") from error


def _read(cursor: _Cursor, name: str) -> dict[str, Any]:
    cursor.at = 4
    if cursor.data[:4] != b"GGUF":
        raise GgufError(f"{name} is not a GGUF file: it does not begin with 'GGUF'")
    version = cursor.scalar("I")
    if version not in (2, 3):
        raise GgufError(f"{name} is GGUF version {version}; allowed: 2 and 3, little endian")
    cursor.scalar("Q")  # number of tensors
    count = cursor.scalar("Q")
    if count > _MAX_KEYS:
        raise GgufError(f"{name} is damaged: it claims {count} metadata keys")
    return {cursor.string().decode("utf-8", "replace"): cursor.value() for _ in range(count)}
