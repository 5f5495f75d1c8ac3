"""A packed model: one block of memory, mapped from the cache or made now.

The file is mapped read-only, so a second worker on the machine shares its
memory. A start reads all of it once, to see that it is as it was written; the
first forward then finds it in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inference_svc.backends.native.cache import cache_dir, locked, publish
from inference_svc.backends.native.layout import Layout, layout
from inference_svc.backends.native.leftovers import remove_leftovers
from inference_svc.backends.native.packed_file import Unfit, in_memory, mapped, write
from inference_svc.backends.native.packing import FORMAT, Array, check_shape, coded_sections, form_of, sections
from inference_svc.backends.native.variants import Variant
from inference_svc.models import ModelConfig, digest, has_codes, inspect, load_codes, load_weights

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PackedModel:
    """Config and arrays of a model.

    Attributes:
        config: The decoder's sizes.
        form: How the matrices are packed: ``fp32``, ``bf16``, ``int8``, ``codes`` or ``nibbles``.
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

    A file of the cache that is not exactly what was written is packed anew, with a warning.

    Raises:
        ModelError: there is no model at that path, or it is not one that is served.
        NativeUnavailable: a model of a shape that the kernels do not have.
    """
    config, _ = inspect(model)
    check_shape(config, precision)
    form = form_of(precision, has_codes(model, precision))
    plan = layout(config, form, variant)
    memory = _memory(place_of(model, precision, variant), plan, lambda: _pack(model, precision, form, variant))
    return PackedModel(config, form, memory, plan.offsets)


def place_of(model: str | Path, precision: str, variant: Variant) -> Path:
    """The cache's file for a model, named after all that its content follows from."""
    return cache_dir() / "weights" / f"{digest(model)[:32]}-{precision}-{variant.name}-{FORMAT}.kev"


def _memory(path: Path, plan: Layout, pack: Callable[[], dict[str, Array]]) -> Array:
    found = _usable(path, plan)
    if found is not None:
        return found
    arrays = pack()
    try:
        with locked(path):
            # Another process may have made it meanwhile. If not, the reason is known.
            if (found := _usable(path, plan, logging.DEBUG)) is None:
                remove_leftovers(path)
                publish(path, lambda stream: write(stream, path.name, plan, arrays))
                found = _usable(path, plan)
    except OSError as error:
        _log.info("native: packed weights are not cached in %s: %s", path.parent, error)
    return in_memory(plan, arrays) if found is None else found


def _usable(path: Path, plan: Layout, level: int = logging.WARNING) -> Array | None:
    try:
        return mapped(path, plan)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, Unfit) as reason:
        _log.log(level, "native: the packed weights %s are not used, and packed anew: %s", path, reason)
        return None


def _pack(model: str | Path, precision: str, form: str, variant: Variant) -> dict[str, Array]:
    codes = None if form == precision else load_codes(model, precision)
    if codes is not None:
        return dict(coded_sections(codes, variant))
    config, weights = load_weights(model)
    return dict(sections(config, weights, form, variant))
