"""One NaN in one element: that channel's logits are lost, and no other bit changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from inference_models import tokens_of
from native_support import PRECISIONS, load

from inference_svc.backends.native import NativeBackend
from inference_svc.rows import Float32Array, Pack, Span

pytestmark = pytest.mark.timeout(600)
"""The first test may have to compile the kernels."""

NAN = float("nan")
LENGTHS = (40, 21, 33, 5)
HIT = 1
"""The channel that gets the NaN."""


@pytest.fixture(params=[*PRECISIONS, "fp32 as codes", "int8 as nibbles"])
def backend(request: pytest.FixtureRequest, save_tiny: Callable[..., Path], coded_model: Path) -> NativeBackend:
    if request.param in PRECISIONS:
        return load(save_tiny("llama"), request.param)
    return load(coded_model, request.param.split()[0])


def _table(channel: int) -> np.ndarray:
    return np.arange(channel * 4, channel * 4 + 4, dtype=np.int32)


def _prefill(backend: NativeBackend) -> None:
    backend.scrub(range(16))
    spans = [Span(n, np.array(tokens_of(n, size), np.int32), 0, _table(n)) for n, size in enumerate(LENGTHS)]
    backend.forward(Pack.of(spans))


def _step(backend: NativeBackend) -> Float32Array:
    spans = [Span(n, np.array([7 + n], np.int32), size, _table(n)) for n, size in enumerate(LENGTHS)]
    return backend.forward(Pack.of(spans)).copy()


def _only_one_is_lost(calm: Float32Array, hit: Float32Array) -> None:
    assert not np.isfinite(hit[HIT]).any()
    others = [n for n in range(len(LENGTHS)) if n != HIT]
    assert np.array_equal(hit[others], calm[others])


@pytest.mark.parametrize("side", ["k", "v"])
@pytest.mark.parametrize("position", [0, 15, 16, 20])
def test_in_one_element_of_k_or_v(backend: NativeBackend, side: str, position: int) -> None:
    _prefill(backend)
    calm = _step(backend)
    _prefill(backend)
    page = int(_table(HIT)[position // 16])
    for element in (0, 1, 15):
        backend.plant_kv(side, layer=1, page=page, head=1, slot=position % 16, element=element, value=NAN)
        _only_one_is_lost(calm, _step(backend))


@pytest.mark.parametrize("element", [0, 31, 32, 95])
def test_in_one_element_of_an_activation(backend: NativeBackend, element: int) -> None:
    _prefill(backend)
    calm = _step(backend)
    _prefill(backend)
    backend.plant_row(layer=1, row=HIT, element=element, value=NAN)
    _only_one_is_lost(calm, _step(backend))


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_an_infinity_is_not_rounded_to_a_number(backend: NativeBackend, value: float) -> None:
    _prefill(backend)
    calm = _step(backend)
    _prefill(backend)
    backend.plant_row(layer=0, row=HIT, element=3, value=value)
    _only_one_is_lost(calm, _step(backend))


def test_beyond_a_rows_own_position_nothing_counts(backend: NativeBackend) -> None:
    _prefill(backend)
    calm = _step(backend)
    _prefill(backend)
    page, slot = int(_table(HIT)[1]), LENGTHS[HIT] % 16 + 1
    for side in ("k", "v"):
        backend.plant_kv(side, layer=0, page=page, head=0, slot=slot, element=2, value=NAN)
    assert np.array_equal(_step(backend), calm)
