"""The library's C interface, as ``decoder.h`` and ``engine.cpp`` declare it. ctypes frees the GIL during every call."""

from __future__ import annotations

import ctypes as c
from pathlib import Path
from typing import Any

from inference_svc.backends.native.errors import NativeUnavailable

PRECISIONS = {"fp32": 0, "bf16": 1, "int8": 2}
FORMS = {**PRECISIONS, "codes": 3, "nibbles": 4}
"""How matrices are packed: as the precision says, or float32 and int8 as the codes of their file."""


def _pointers(names: str) -> list[tuple[str, Any]]:
    return [(name, c.c_void_p) for name in names.split()]


def _ints(names: str) -> list[tuple[str, Any]]:
    return [(name, c.c_int32) for name in names.split()]


class Layer(c.Structure):
    """Arrays of one decoder block; null where the model has none."""

    _fields_ = _pointers("qkv o gate_up down attn_norm mlp_norm qkv_bias q_norm k_norm")


class Model(c.Structure):
    """Sizes, switches and arrays of a model."""

    _fields_ = [
        *_ints("hidden layers heads kv_heads head_dim inter vocab form pages threads"),
        ("eps", c.c_float),
        *_pointers("layer embed head final_norm cos sin"),
    ]


class PackRows(c.Structure):
    """One forward's rows."""

    _fields_ = [
        *_ints("rows wanted"),
        *_pointers("tokens positions table_start tables wanted_rows"),
    ]


def bind(library: Path) -> c.CDLL:
    """Loads the library and declares its functions.

    Raises:
        NativeUnavailable: the system cannot load it.
    """
    try:
        lib = c.CDLL(str(library))
    except OSError as error:
        raise NativeUnavailable(f"native: cannot load {library.name}: {error}") from error
    i32, pointer = c.c_int32, c.c_void_p
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "kev_block": (i32, []),
        "kev_int8_step": (i32, []),
        "kev_open": (pointer, [c.POINTER(Model)]),
        "kev_close": (None, [pointer]),
        "kev_forward": (i32, [pointer, c.POINTER(PackRows), pointer]),
        "kev_fill": (None, [pointer, pointer, i32, c.c_float]),
        "kev_copy_page": (None, [pointer, i32, i32]),
        "kev_plant_kv": (None, [pointer, *[i32] * 6, c.c_float]),
        "kev_roof": (c.c_double, [i32, i32, pointer, c.c_int64]),
        "kev_plant_row": (None, [pointer, *[i32] * 3, c.c_float]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib
