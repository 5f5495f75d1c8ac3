"""Backends with a fault in them. The claim that packed equals alone must fail on each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from inference_svc.backends.passing import PassingBackend
from inference_svc.backends.port import Backend
from inference_svc.rows import Float32Array, Pack

LEVELS = 127


class OneScale(PassingBackend):
    """Logits rounded to int8 with one scale for the whole pack, instead of one for each row.

    What a quantiser that shares its scale does to neighbours, put where it can be put on any backend.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, f"{backend.variant}, one scale over the pack")

    def forward(self, pack: Pack) -> Float32Array:
        """See ``Backend.forward``."""
        logits = super().forward(pack)
        if not len(logits):
            return logits
        scale = np.float32(np.abs(logits).max() / LEVELS)
        rounded: Float32Array = np.round(logits / scale).astype(np.float32) * scale
        return rounded


def native_with_defects(path: str | Path, precision: str, pages: int) -> Backend:
    """The native backend from kernels with a fault built in: int8 with a scale that other rows move,
    float32 and bfloat16 with sums split by the size of the batch. Compiled once, half a minute.

    Raises:
        NativeUnavailable: there is no compiler.
    """
    from inference_svc.backends.native import NativeBackend, binding
    from inference_svc.backends.native.build import library
    from inference_svc.backends.native.packed import open_packed
    from inference_svc.backends.native.variants import choose

    variant = choose()
    built = binding.bind(library(variant, ("-DKEV_DEFECTS",)))
    model = open_packed(path, precision, variant)
    return NativeBackend(
        lib=built,
        model=model,
        variant=variant,
        precision=precision,
        pages=pages,
        threads=1,
        max_context=model.config.max_context,
    )
