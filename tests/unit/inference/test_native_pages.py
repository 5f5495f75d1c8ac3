"""The native KV store: where pages lie shows in no bit, and what is done to one is done to all of it, and no other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from inference_models import tokens_of
from native_support import PRECISIONS, load
from no_memory import INTERMEDIATE

from inference_svc.backends.native import NativeBackend
from inference_svc.rows import Float32Array, Pack, Span
from inference_svc.verify.report import same_bits

pytestmark = pytest.mark.timeout(600)
"""The first test may have to compile the kernels."""

PAGES = 130
TABLE = (63, 64, 127, 0, 128, 129, 1)
"""Pages on both sides of the ends of runs (64 pages lie together), as nobody would deal them out."""
TOKENS = np.array(tokens_of(5, 16 * len(TABLE) - 1), np.int32)
LAST = np.array([9], np.int32)


@pytest.fixture(params=PRECISIONS)
def backend(request: pytest.FixtureRequest, save_tiny: Callable[..., Path]) -> NativeBackend:
    return load(save_tiny("qwen3"), request.param, pages=PAGES, threads=2)


def _read(backend: NativeBackend, table: tuple[int, ...]) -> Float32Array:
    """Logits of a row that sees every position of these pages."""
    return backend.forward(Pack.of([Span(0, LAST, len(TOKENS), np.array(table, np.int32))])).copy()


def _write(backend: NativeBackend, table: tuple[int, ...] = TABLE) -> Float32Array:
    return backend.forward(Pack.of([Span(0, TOKENS, 0, np.array(table, np.int32), len(TOKENS))])).copy()


def test_where_pages_lie_changes_no_bit(backend: NativeBackend) -> None:
    backend.fill(range(PAGES), np.nan)
    neighbours = tuple(range(len(TABLE)))
    expected = _write(backend, neighbours), _read(backend, neighbours)
    backend.fill(range(PAGES), np.nan)
    assert same_bits(_write(backend), expected[0])
    assert same_bits(_read(backend, TABLE), expected[1])


def test_scrubbing_touches_no_other_page(backend: NativeBackend) -> None:
    _write(backend)
    expected = _read(backend, TABLE)
    backend.scrub([page for page in range(PAGES) if page not in TABLE])
    assert same_bits(_read(backend, TABLE), expected)


def test_scrubbing_leaves_nothing_of_a_page(backend: NativeBackend) -> None:
    """One number left in K or V of any head and layer would be seen: each position of each page was written to."""
    expected = _read(backend, TABLE)  # nobody wrote to them yet
    _write(backend)
    assert not same_bits(_read(backend, TABLE), expected)
    backend.scrub(TABLE)
    assert same_bits(_read(backend, TABLE), expected)
    backend.fill([TABLE[2]], np.nan)
    assert not np.isfinite(_read(backend, TABLE)).any()


def test_copying_takes_all_of_a_page_and_touches_no_other(backend: NativeBackend) -> None:
    _write(backend)
    expected = _read(backend, TABLE)
    backend.fill([page for page in range(PAGES) if page not in TABLE], np.nan)
    moved = (62, 65, 126, 2, 66, 125, 3)
    for source, target in zip(TABLE, moved, strict=True):
        backend.copy_page(source, target)
    assert same_bits(_read(backend, TABLE), expected)
    assert same_bits(_read(backend, moved), expected)


def test_a_pack_that_found_no_memory_can_be_computed_later(save_tiny: Callable[..., Path]) -> None:
    path = save_tiny("qwen3", num_hidden_layers=1, intermediate_size=INTERMEDIATE)
    # In a process of its own: this one may have freed memory left, which no limit takes from it.
    command = [sys.executable, str(Path(__file__).with_name("no_memory.py")), str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "refused, then equal\n"
