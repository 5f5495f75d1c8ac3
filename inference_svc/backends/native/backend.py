"""The native backend: our own C++ kernels on the CPU."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from inference_svc.backends.native import binding
from inference_svc.backends.native.build import library
from inference_svc.backends.native.errors import NativeUnavailable
from inference_svc.backends.native.packed import PackedModel, open_packed
from inference_svc.backends.native.packing import Array, rotation
from inference_svc.backends.native.variants import Variant, choose
from inference_svc.rows import PAGE_SIZE, Float32Array, Pack, pages_for


class NativeBackend:
    """One model with its KV store, in the kernels' hands. Used from one thread only."""

    name = "native"

    def __init__(
        self,
        lib: ctypes.CDLL,
        model: PackedModel,
        variant: Variant,
        precision: str,
        pages: int,
        threads: int,
        max_context: int,
    ) -> None:
        """Use ``load``."""
        self.packed, self.precision, self.pages, self.threads = model, precision, pages, threads
        self.max_context = max_context
        self.variant = f"{variant.name}-{precision}"
        self._lib = lib
        self._results = _Results(model.config.vocab)
        self._keep = (*rotation(_floats(model, "inv_freq"), max_context), _layers(model))
        cos, sin, layers = self._keep
        sizes = model.config
        described = binding.Model(
            sizes.hidden, sizes.layers, sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.intermediate, sizes.vocab,
            binding.FORMS[model.form], pages, threads, sizes.norm_eps,
            ctypes.addressof(layers), *(_address(model, name) for name in ("embed", "head", "final_norm")),
            cos.ctypes.data, sin.ctypes.data,
        )  # fmt: skip
        self._engine: int | None = lib.kev_open(ctypes.byref(described))
        if not self._engine:
            raise MemoryError(f"native: no memory for {pages} KV pages")

    @classmethod
    def load(
        cls,
        model_path: str | Path,
        *,
        precision: str = "fp32",
        pages: int,
        threads: int | None = None,
        max_context: int | None = None,
        variant: str | None = None,
    ) -> NativeBackend:
        """Loads a model, with kernels and packed weights from the cache or made now.

        Args:
            model_path: A GGUF file or a Hugging Face directory.
            precision: ``fp32``, ``bf16`` or ``int8`` (groups of 32).
            pages: Size of the KV store, in pages of 16 positions.
            threads: Worker threads; by default one per processor that this process may use.
            max_context: Most positions of a channel; by default what the model was made for.
            variant: ``avx512bf16``, ``avx512`` or ``avx2``; by default the best that runs here.

        Raises:
            ValueError: an argument is not allowed; the message says what is.
            ModelError: there is no model at the path, or it is one that is not served.
            NativeUnavailable: no compiler, no suitable processor, or a model of a shape
                that the kernels do not have.
        """
        _check(precision, pages, threads)
        isa = choose(variant)
        lib = binding.bind(library(isa))
        model = open_packed(model_path, precision, isa)
        limit = model.config.max_context
        context = limit if max_context is None else max_context
        if not 1 <= context <= limit:
            raise ValueError(f"max_context: allowed are 1 .. {limit} for this model, got {context}")
        return cls(lib, model, isa, precision, pages, threads or _processors(), context)

    @property
    def vocab_size(self) -> int:
        """Length of a logit row."""
        return self.packed.config.vocab

    @property
    def kv_bytes_per_page(self) -> int:
        """Bytes of one page over all layers, K and V: float32 for ``fp32``, else bfloat16."""
        config = self.packed.config
        return 2 * PAGE_SIZE * config.layers * config.kv_width * (4 if self.precision == "fp32" else 2)

    def forward(self, pack: Pack) -> Float32Array:
        """See ``Backend.forward``."""
        tokens, positions, wanted = pack.tokens(), pack.positions(), pack.wanted_rows()
        counts = [span.count for span in pack.spans]
        tables = [span.table[: pages_for(span.end)] for span in pack.spans]
        lengths = [len(table) for table in tables]
        starts = np.repeat(np.cumsum([0, *lengths[:-1]]), counts).astype(np.int32)
        joined = np.concatenate(tables).astype(np.int32, copy=False)
        # All at once: a look at each span takes longer than packing them.
        if not (_below(tokens, self.vocab_size) and _below(positions, self.max_context) and _below(joined, self.pages)):
            self._complain(pack)
        logits = self._results.take(len(wanted))
        rows = binding.PackRows(
            pack.rows, len(wanted), *(array.ctypes.data for array in (tokens, positions, starts, joined, wanted))
        )
        if self._lib.kev_forward(self._open(), ctypes.byref(rows), logits.ctypes.data):
            raise MemoryError("native: no memory for this pack")
        return logits

    def scrub(self, pages: Sequence[int]) -> None:
        """Zeroes K and V of these pages in every layer."""
        self.fill(pages, 0.0)

    def fill(self, pages: Sequence[int], value: float) -> None:
        """Sets K and V of these pages in every layer: a NaN, to see that it stays where it is."""
        ids = np.asarray(pages, np.int32)
        self._check_pages("pages", ids)
        self._lib.kev_fill(self._open(), ids.ctypes.data, len(ids), value)

    def copy_page(self, source: int, target: int) -> None:
        """Copies K and V of one page in every layer."""
        self._check_pages("copy_page", np.asarray([source, target], np.int32))
        self._lib.kev_copy_page(self._open(), source, target)

    def plant_kv(self, side: str, *, layer: int, page: int, head: int, slot: int, element: int, value: float) -> None:
        """For fault tests: writes one element of K or V (``side``) of a page's position ``slot``."""
        self._lib.kev_plant_kv(self._open(), side == "v", layer, page, head, slot, element, value)

    def plant_row(self, *, layer: int, row: int, element: int, value: float) -> None:
        """For fault tests: the next forward adds ``value`` to one element of a row's hidden state before ``layer``."""
        self._lib.kev_plant_row(self._open(), layer, row, element, value)

    def close(self) -> None:
        """Frees memory and threads."""
        if self._engine:
            self._lib.kev_close(self._engine)
        self._engine = None

    def _open(self) -> int:
        if self._engine is None:
            raise RuntimeError("native: the backend is closed")
        return self._engine

    def _complain(self, pack: Pack) -> None:
        """Names the channel whose rows cannot be computed."""
        for span in pack.spans:
            if not _below(span.tokens, self.vocab_size):
                raise ValueError(f"channel {span.channel}: token ids are 0 .. {self.vocab_size - 1}")
            if span.end > self.max_context:
                raise ValueError(f"channel {span.channel}: {span.end} positions, max_context is {self.max_context}")
            self._check_pages(f"channel {span.channel}", span.table[: pages_for(span.end)])

    def _check_pages(self, where: str, ids: Array) -> None:
        if not _below(ids, self.pages):
            raise ValueError(f"{where}: page ids are 0 .. {self.pages - 1}")


def _below(ids: Array, limit: int) -> bool:
    """Whether all lie in ``0 .. limit - 1``."""
    return not len(ids) or bool(ids.min() >= 0 and ids.max() < limit)


class _Results:
    """Logit arrays, used again once nobody holds them: fresh memory costs a page fault every 4 KiB."""

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        self._held: list[Float32Array] = []

    def take(self, rows: int) -> Float32Array:
        for whole, count in zip(self._held, _counts(self._held), strict=True):
            if len(whole) >= rows and count == _HELD_HERE_ONLY:
                return whole[:rows]
        fresh = np.empty((rows, self._vocab), np.float32)
        self._held = [whole for whole in self._held if len(whole) > rows][-3:]
        self._held.append(fresh)
        return fresh[:]


def _counts(held: list[Float32Array]) -> list[int]:
    """How many references there are to each."""
    return [sys.getrefcount(whole) for whole in held]


_HELD_HERE_ONLY = _counts([np.empty(0, np.float32)])[0]
"""The count of an array that nobody else holds: Python versions differ in what they count."""


_MOST_PAGES = 1 << 31
"""The kernels number pages in 32 bits: of more, only the rest would be there."""


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _check(precision: str, pages: int, threads: int | None) -> None:
    if precision == "fp16":
        raise ValueError("precision fp16 is not built for the native backend yet; allowed are fp32, bf16, int8")
    if precision not in binding.PRECISIONS:
        raise ValueError(f"precision {precision!r}: allowed are fp32, bf16, int8")
    if pages < 1:
        raise ValueError(f"pages must be at least 1, got {pages}")
    if pages >= _MOST_PAGES:
        raise ValueError(f"pages must be below {_MOST_PAGES}, got {pages}")
    if threads is not None and not 1 <= threads <= 1024:
        raise ValueError(f"threads: allowed are 1 .. 1024, got {threads}")


def _floats(model: PackedModel, name: str) -> Float32Array:
    array = model.array(name)
    if array is None:
        raise NativeUnavailable(f"native: the packed model has no {name}")
    return array.view(np.float32)


def _address(model: PackedModel, name: str) -> int | None:
    array = model.array(name)
    return None if array is None else int(array.ctypes.data)


def _layers(model: PackedModel) -> ctypes.Array[binding.Layer]:
    names = [name for name, *_ in binding.Layer._fields_]
    layers = [binding.Layer(*(_address(model, f"{i}.{n}") for n in names)) for i in range(model.config.layers)]
    return (binding.Layer * len(layers))(*layers)
