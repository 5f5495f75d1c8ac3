"""The reference backend keeps the port's contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from inference_models import tokens_of

from inference_svc.backends.port import Backend
from inference_svc.backends.reference import ReferenceBackend
from inference_svc.models import load_weights
from inference_svc.rows import Pack, Span

Load = Callable[[str, str], ReferenceBackend]


@pytest.fixture
def backend(tiny_backend: Load) -> ReferenceBackend:
    return tiny_backend("llama", "fp32")


def _span(channel: int = 0, count: int = 5, position: int = 0, wanted: int = 1, first_page: int = 0) -> Span:
    pages = np.arange(first_page, first_page + 40, dtype=np.int32)
    return Span(channel, np.array(tokens_of(channel, count), dtype=np.int32), position, pages, wanted)


def test_it_says_what_it_is(backend: ReferenceBackend) -> None:
    port: Backend = backend
    assert (port.name, port.variant) == ("reference", "torch-cpu-fp32")
    assert (port.vocab_size, port.max_context, port.pages) == (257, 512, 160)


def test_logits_come_in_the_order_of_the_wanted_rows(backend: ReferenceBackend) -> None:
    one, two = _span(0, 5, wanted=2), _span(1, 7, wanted=3, first_page=40)
    together = backend.forward(Pack.of([one, two]))
    assert together.shape == (5, 257)
    assert together.dtype == np.float32
    assert np.array_equal(together[:2], backend.forward(Pack.of([one])))
    assert np.array_equal(together[2:], backend.forward(Pack.of([two])))


def test_a_forward_that_wants_nothing_returns_no_rows(backend: ReferenceBackend) -> None:
    assert backend.forward(Pack.of([_span(wanted=0)])).shape == (0, 257)


def test_the_logits_are_the_callers(backend: ReferenceBackend) -> None:
    pack = Pack.of([_span()])
    kept = backend.forward(pack)
    copy = kept.copy()
    kept[:] += 1
    assert np.array_equal(backend.forward(pack), copy)


@pytest.mark.parametrize(
    ("span", "reason"),
    [
        (Span(3, np.array([257], np.int32), 0, np.zeros(1, np.int32)), "channel 3: token ids must be 0..256"),
        (Span(3, np.array([-1], np.int32), 0, np.zeros(1, np.int32)), "token ids"),
        (Span(3, np.array([1], np.int32), 512, np.zeros(33, np.int32)), "513 positions, at most 512"),
        (Span(3, np.array([1], np.int32), 0, np.array([160], np.int32)), "page ids must be 0..159"),
        (Span(3, np.array([1], np.int32), 0, np.array([-1], np.int32)), "page ids"),
    ],
)
def test_a_bad_span_is_refused_before_anything_is_written(backend: ReferenceBackend, span: Span, reason: str) -> None:
    good = _span(0, 16)
    expected = backend.forward(Pack.of([good]))
    follow = _span(0, 1, position=16)
    after = backend.forward(Pack.of([follow]))
    with pytest.raises(ValueError, match=reason):
        backend.forward(Pack.of([_span(0, 16, first_page=40), span]))
    assert np.array_equal(backend.forward(Pack.of([follow])), after)
    assert np.array_equal(backend.forward(Pack.of([good])), expected)


def test_scrubbed_and_copied_pages(backend: ReferenceBackend) -> None:
    backend.scrub(range(160))
    backend.forward(Pack.of([_span(0, 16)]))
    follow = _span(0, 1, position=16)
    expected = backend.forward(Pack.of([follow]))
    backend.copy_page(0, 80)
    moved = Span(0, follow.tokens, 16, np.array([80, 81], np.int32))
    assert np.array_equal(backend.forward(Pack.of([moved])), expected)
    backend.scrub([80])
    assert not np.array_equal(backend.forward(Pack.of([moved])), expected)
    with pytest.raises(ValueError, match="page ids"):
        backend.scrub([160])
    with pytest.raises(ValueError, match="page ids"):
        backend.copy_page(0, -1)


@pytest.mark.parametrize("precision", ["fp16", "int8", "float32"])
def test_a_precision_that_is_not_built_is_refused_by_name(tiny_dirs: dict[str, Path], precision: str) -> None:
    with pytest.raises(ValueError, match=f"'{precision}'.*allowed: fp32, bf16"):
        ReferenceBackend.load(tiny_dirs["llama"], precision=precision)


def test_bf16_is_close_to_fp32_and_not_the_same(tiny_backend: Load) -> None:
    pack = Pack.of([_span(0, 60, wanted=60)])
    full, half = (tiny_backend("llama", precision).forward(pack) for precision in ("fp32", "bf16"))
    assert not np.array_equal(full, half)
    assert np.abs(full - half).max() < 0.1 * np.abs(full).max()


def test_a_store_without_pages_is_refused(tiny_dirs: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match="pages"):
        ReferenceBackend.from_weights(*load_weights(tiny_dirs["llama"]), pages=0)


def test_closing_twice_is_fine(tiny_dirs: dict[str, Path]) -> None:
    backend = ReferenceBackend.load(tiny_dirs["llama"], pages=8)
    backend.close()
    backend.close()
