"""The layout of a safetensors file, read into numpy.

The format is a length, a JSON table and the tensors' bytes. It is read here
rather than through its library because numpy has no bfloat16, and because a
worker with the native backend then needs no torch to load a model.

Source of the layout: the safetensors format description.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_svc.models.errors import ModelError
from inference_svc.rows import Float32Array

_TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
_LONGEST_TABLE = 100_000_000


class SafetensorsFile:
    """An open safetensors file: names, shapes, and tensors as float32."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        try:
            self._bytes: npt.NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")
        except ValueError:
            raise self._damaged("it is empty") from None
        start = 8 + int.from_bytes(self._bytes[:8].tobytes(), "little")
        if not 8 < start <= min(len(self._bytes), _LONGEST_TABLE):
            raise self._damaged("its table does not fit")
        self._data = self._bytes[start:]
        self._table = self._read_table(self._bytes[8:start].tobytes())

    def names(self) -> list[str]:
        """Names of all tensors."""
        return list(self._table)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        shape, _, _ = self._entry(name)
        return shape

    def kind(self, name: str) -> str:
        """How a tensor is stored, as the file names it."""
        return self._entry(name)[1]

    def check(self, name: str) -> None:
        """Whether ``tensor`` would read it; raises as that does."""
        shape, kind, (begin, end) = self._entry(name)
        if kind not in _TYPES:
            raise ModelError(f"tensor {name}: type {kind} is not supported; allowed: F32, F16, BF16")
        if not 0 <= begin <= end <= len(self._data) or end - begin != math.prod(shape) * _TYPES[kind].itemsize:
            raise self._damaged(f"tensor {name} does not fit")

    def tensor(self, name: str) -> Float32Array:
        """A tensor as float32.

        Raises:
            ModelError: the table is damaged there, or the type is not one of
                float32, float16 and bfloat16.
        """
        self.check(name)
        shape, kind, (begin, end) = self._entry(name)
        # A tensor's bytes need not be aligned to its type: copying them first makes them so.
        stored: npt.NDArray[Any] = np.frombuffer(self._data[begin:end].tobytes(), dtype=_TYPES[kind])
        if kind == "BF16":
            stored = (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return stored.astype(np.float32).reshape(shape)

    def _read_table(self, raw: bytes) -> dict[str, Any]:
        try:
            table = json.loads(raw)
        except ValueError:
            raise self._damaged("its table is not JSON") from None
        if not isinstance(table, dict):
            raise self._damaged("its table is not an object")
        table.pop("__metadata__", None)
        return table

    def _entry(self, name: str) -> tuple[tuple[int, ...], str, tuple[int, int]]:
        try:
            entry = self._table[name]
            begin, end = (int(offset) for offset in entry["data_offsets"])
            return tuple(int(size) for size in entry["shape"]), str(entry["dtype"]), (begin, end)
        except (KeyError, TypeError, ValueError):
            raise self._damaged(f"the entry of tensor {name} is malformed") from None

    def _damaged(self, how: str) -> ModelError:
        return ModelError(f"{self._name}: the file is cut off or damaged: {how}")
