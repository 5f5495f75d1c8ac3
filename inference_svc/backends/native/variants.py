"""Instruction sets: which builds of the kernels exist, and which one this machine can run."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from inference_svc.backends.native.errors import NativeUnavailable


@dataclass(frozen=True, slots=True)
class Variant:
    """One build of the source.

    Attributes:
        name: The name that results are equal under.
        needs: Processor features, as Linux names them.
        flags: Compiler flags.
        lanes: Floats in a vector; a weight block has twice as many columns.
        int8_step: Neighbouring int8 weights of one column in 32 bits of a row's dot step.
        unsigned_int8: int8 weights are stored with 128 added.
    """

    name: str
    needs: frozenset[str]
    flags: tuple[str, ...]
    lanes: int
    int8_step: int = 2
    unsigned_int8: bool = False

    @property
    def block(self) -> int:
        """Columns in a weight block."""
        return 2 * self.lanes


_AVX512 = frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq", "fma"})
_AVX512_FLAGS = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma")

VARIANTS = (
    Variant(
        "avx512bf16",
        _AVX512 | {"avx512_bf16", "avx512_vnni"},
        (*_AVX512_FLAGS, "-mavx512bf16", "-mavx512vnni"),
        lanes=16,
        int8_step=4,
        unsigned_int8=True,
    ),
    Variant("avx512", _AVX512, _AVX512_FLAGS, lanes=16),
    Variant("avx2", frozenset({"avx2", "fma", "f16c"}), ("-mavx2", "-mfma", "-mf16c"), lanes=8),
)
"""Best first."""


def processor_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Features of this processor that the system lets programs use; empty where that cannot be told."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return frozenset()
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")
    return frozenset(flags.split())


def choose(name: str | None = None, features: frozenset[str] | None = None) -> Variant:
    """The best variant that runs here, or the named one (``name``, else ``KEV_NATIVE_VARIANT``).

    Raises:
        ValueError: there is no variant of that name.
        NativeUnavailable: this processor cannot run it, or none of them.
    """
    has = processor_features() if features is None else features
    wanted = name or os.environ.get("KEV_NATIVE_VARIANT")
    named = by_name(wanted) if wanted else None
    for variant in (named,) if named else VARIANTS:
        if variant.needs <= has:
            return variant
    need = named or VARIANTS[-1]
    missing = ", ".join(sorted(need.needs - has))
    raise NativeUnavailable(f"native: this processor lacks {missing}, which the {need.name} kernels need")


def by_name(name: str) -> Variant:
    """The variant of that name; ValueError names those that exist."""
    for variant in VARIANTS:
        if variant.name == name:
            return variant
    raise ValueError(f"native variant {name!r}: allowed are {', '.join(v.name for v in VARIANTS)}")
