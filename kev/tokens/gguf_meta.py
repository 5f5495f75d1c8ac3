"""The head of a GGUF file: its key-value part, and what else a caller reads on from there.

No tensor is touched: a router needs only the vocabulary, and gets it in a fraction of a second.
Source of the layout: the GGUF specification, versions 2 and 3, little endian.
"""

import mmap
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_HEADER = 24
_MAX_KEYS = 65_536
_DAMAGED = (struct.error, LookupError, ValueError, ArithmeticError, MemoryError, RecursionError)


class GgufError(ValueError):
    """The file is not a GGUF file that Kev can read; the text names the file and what is wrong."""


class GgufHead:
    """A place in the mapped file that moves forward as values are read; first over the metadata.

    Args:
        data: The whole file.
        longest: Lists with more entries are stepped over, not built: None stands for them.

    Attributes:
        metadata: All key-value pairs, in file order.
        tensors: How many tensors the file says it has; the place is at the table of them.
    """

    def __init__(self, data: mmap.mmap, longest: int) -> None:
        self.data, self.at, self._longest = data, 4, longest
        if data[:4] != b"GGUF":
            raise GgufError("not a GGUF file: it does not begin with 'GGUF'")
        version = self.scalar("I")
        if version not in (2, 3):
            raise GgufError(f"GGUF version {version} is not supported; allowed: 2 and 3, little endian")
        self.tensors: int = self.scalar("Q")
        count = self.scalar("Q")
        if count > _MAX_KEYS:
            raise GgufError(f"the file is damaged: it claims {count} metadata keys")
        self.metadata: dict[str, Any] = {self.string().decode("utf-8", "replace"): self._value() for _ in range(count)}

    def scalar(self, code: str) -> Any:
        """One number; ``code`` is that of ``struct``."""
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self) -> bytes:
        """One string, UTF-8 as a rule."""
        length = self.scalar("Q")
        if length > len(self.data) - self.at:
            raise GgufError("the file is cut off or damaged: a string runs past its end")
        self.at += length
        return self.data[self.at - length : self.at]

    def _value(self) -> Any:
        kind = self.scalar("I")
        if kind == _STRING:
            return self.string().decode("utf-8", "replace")
        return self._array() if kind == _ARRAY else self.scalar(_SCALARS[kind])

    def _array(self) -> list[Any] | None:
        kind, count = self.scalar("I"), self.scalar("Q")
        if count > len(self.data):
            raise GgufError("the file is cut off or damaged: a list is longer than the file")
        if kind == _STRING:
            return self._strings(count)
        if kind == _ARRAY:
            return [self._array() for _ in range(count)]
        dtype, start = np.dtype("<" + _SCALARS[kind]), self.at
        self.at += dtype.itemsize * count
        return None if count > self._longest else list(np.frombuffer(self.data, dtype, count, start).tolist())

    def _strings(self, count: int) -> list[bytes] | None:
        data, at, out = self.data, self.at, []
        unpack, wanted = struct.Struct("<Q").unpack_from, count <= self._longest
        for _ in range(count):
            (length,) = unpack(data, at)
            at += 8 + length
            if wanted:
                out.append(data[at - length : at])
        if at > len(data):
            raise GgufError("the file is cut off or damaged: a list of strings runs past its end")
        self.at = at
        return out if wanted else None


@contextmanager
def gguf_head(path: Path, longest: int = sys.maxsize) -> Iterator[GgufHead]:
    """Opens a GGUF file and reads its metadata.

    Strings come as `str`; lists of strings as lists of **bytes** (vocabulary pieces need not be valid UTF-8);
    numbers and lists of numbers as they are.

    Args:
        longest: Lists with more entries are stepped over, which makes opening a matter of milliseconds.

    Raises:
        GgufError: not a GGUF file, an unknown version, or damaged; also where the caller reads on and cannot.
    """
    with path.open("rb") as file:
        if path.stat().st_size < _HEADER:
            raise GgufError(f"{path.name}: not a GGUF file: too short")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                yield GgufHead(data, longest)
            except _DAMAGED as error:
                why = str(error) if isinstance(error, GgufError) else "the file is cut off or damaged"
                raise GgufError(f"{path.name}: {why}") from error


def read_metadata(path: Path) -> dict[str, Any]:
    """All key-value pairs of a GGUF file, as ``gguf_head`` gives them.

    Raises:
        GgufError: not a GGUF file, an unknown version, or damaged.
    """
    with gguf_head(path) as head:
        return head.metadata
