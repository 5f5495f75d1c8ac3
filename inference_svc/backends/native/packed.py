"""A packed model: one block of memory, mapped from the cache or made now.

The file is mapped read-only, so a second worker on the machine shares its
memory, and a start costs what the first forward reads.
"""

from __future__ import annotations

import json
import logging
import mmap
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from inference_svc.backends.native.cache import cache_dir, locked, publish
from inference_svc.backends.native.packing import FORMAT, Array, coded_sections, form_of, sections
from inference_svc.backends.native.variants import Variant
from inference_svc.models import ModelConfig, RopeScaling, digest, load_codes, load_weights

_log = logging.getLogger(__name__)

_MAGIC = b"KEVPACK1"
_ALIGN = 64
_HEAD = 16


class _Sink(Protocol):
    def write(self, data: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class PackedModel:
    """Config and arrays of a model.

    Attributes:
        config: The decoder's sizes.
        form: How the matrices are packed: ``fp32``, ``bf16``, ``int8`` or ``codes``.
        memory: Everything, as bytes; keep it as long as the arrays are in use.
        offsets: Where each array starts in ``memory``, and its length, by name.
    """

    config: ModelConfig
    form: str
    memory: Array
    offsets: dict[str, tuple[int, int]]

    def array(self, name: str) -> Array | None:
        """The bytes of an array, uint8, or None where the model has none of that name."""
        if name not in self.offsets:
            return None
        start, size = self.offsets[name]
        return self.memory[start : start + size]

    @property
    def weight_bytes(self) -> int:
        """Bytes that a forward reads: all but the embedding table."""
        return sum(size for name, (_, size) in self.offsets.items() if name != "embed")


def open_packed(model: str | Path, precision: str, variant: Variant) -> PackedModel:
    """The packed model, from the cache where it is there, else packed now and kept if the cache can be written.

    Raises:
        ModelError: there is no model at that path, or it is not one that is served.
    """
    path = cache_dir() / "weights" / f"{digest(model)[:32]}-{precision}-{variant.name}-{FORMAT}.kev"
    found = _map(path, precision)
    if found is not None:
        return found
    made = _pack(model, precision, variant)
    try:
        with locked(path):
            if (found := _map(path, precision)) is None:
                publish(path, lambda stream: _write(stream, made))
                found = _map(path, precision)
    except OSError as error:
        _log.info("native: packed weights are not cached in %s: %s", path.parent, error)
    return found or _in_memory(made)


@dataclass(frozen=True, slots=True)
class _Made:
    config: ModelConfig
    form: str
    arrays: dict[str, Array]


def _pack(model: str | Path, precision: str, variant: Variant) -> _Made:
    codes = load_codes(model) if precision == "fp32" else None
    if codes is not None:
        return _Made(codes.config, form_of(precision, coded=True), dict(coded_sections(codes, variant)))
    config, weights = load_weights(model)
    return _Made(config, form_of(precision, coded=False), dict(sections(config, weights, precision, variant)))


def _table(arrays: dict[str, Array]) -> tuple[dict[str, tuple[int, int]], int]:
    """Offsets from the start of the data, each on a cache line, and the length of it all."""
    offsets, end = {}, 0
    for name, array in arrays.items():
        offsets[name] = (end, array.nbytes)
        end += -(-array.nbytes // _ALIGN) * _ALIGN
    return offsets, end


def _write(stream: _Sink, made: _Made) -> None:
    """Magic, length of the header, header (JSON, padded to a cache line), arrays."""
    offsets, end = _table(made.arrays)
    head = {"config": asdict(made.config), "form": made.form, "offsets": offsets, "bytes": end}
    header = json.dumps(head).encode()
    header += b" " * (-(_HEAD + len(header)) % _ALIGN)
    stream.write(_MAGIC + len(header).to_bytes(8, "little") + header)
    for array in made.arrays.values():
        stream.write(np.ascontiguousarray(array).data)
        stream.write(b"\0" * (-array.nbytes % _ALIGN))


def _map(path: Path, precision: str) -> PackedModel | None:
    try:
        with path.open("rb") as stream:
            found = _read(stream)
        if found.form not in {form_of(precision, coded) for coded in (False, True)}:
            raise ValueError("a packed model of another precision")
        return found
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read(stream: IO[bytes]) -> PackedModel:
    start = stream.read(_HEAD)
    if start[:8] != _MAGIC:
        raise ValueError("not a packed model")
    length = int.from_bytes(start[8:], "little")
    header = json.loads(stream.read(length))
    data = _HEAD + length
    memory = np.frombuffer(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    if len(memory) != data + header["bytes"]:
        raise ValueError("a packed model of the wrong length")
    offsets = {name: (start, size) for name, (start, size) in header["offsets"].items()}
    return PackedModel(_config(header["config"]), header["form"], memory[data:], offsets)


def _config(values: dict[str, Any]) -> ModelConfig:
    if set(values) != {field.name for field in fields(ModelConfig)}:
        raise ValueError("a packed model of another version")
    scaling = values.pop("rope_scaling")
    eos = tuple(values.pop("eos_ids"))
    return ModelConfig(**values, eos_ids=eos, rope_scaling=RopeScaling(**scaling) if scaling else None)


def _in_memory(made: _Made) -> PackedModel:
    offsets, end = _table(made.arrays)
    memory = np.frombuffer(mmap.mmap(-1, end), np.uint8)
    for name, array in made.arrays.items():
        start, size = offsets[name]
        memory[start : start + size] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return PackedModel(made.config, made.form, memory, offsets)
