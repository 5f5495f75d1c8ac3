"""What the checks themselves rely on: bits are compared, and a failure says where."""

from __future__ import annotations

import numpy as np
import pytest

from inference_svc.backends.reference import ReferenceBackend
from inference_svc.verify import Prompt, lane, self_test
from inference_svc.verify.report import Check, SelfTestReport, all_of, compare, same_bits


def _rows(*values: float) -> np.ndarray:
    return np.array([values], dtype=np.float32)


def test_bits_not_values() -> None:
    assert same_bits(_rows(1.0), _rows(1.0))
    assert same_bits(_rows(np.nan), _rows(np.nan))
    assert not same_bits(_rows(0.0), _rows(-0.0))
    assert not same_bits(_rows(1.0), _rows(np.nextafter(np.float32(1), np.float32(2))))
    assert not same_bits(_rows(1.0), _rows(1.0, 1.0))


def test_a_difference_is_counted_and_placed() -> None:
    check = compare("equal", [_rows(1, 2), _rows(3, 4)], [_rows(1, 2), _rows(3, 4.5)])
    assert not check.passed
    assert check.detail == "1 of 2 logit rows equal; lanes [1] differ, by 0.5 at most"


def test_equal_but_not_finite_is_no_pass() -> None:
    assert not compare("equal", [_rows(np.nan)], [_rows(np.nan)]).passed


def test_a_report_passes_only_as_a_whole() -> None:
    good, bad = Check("a", True, "1 of 1"), Check("b", False, "0 of 1")
    assert SelfTestReport("v", (good, good)).passed
    assert SelfTestReport("v", (good, bad)).failures == (bad,)
    assert all_of("both", [good, bad]) == Check("both", False, "0 of 1")


def test_lanes_cut_prompts_and_ask_for_the_scored_rows() -> None:
    prompt = Prompt(tuple(range(10)), (50, 51), scored=4)
    spans = [lane(prompt, chunk=4).span(forward) for forward in range(6)]
    assert [(span.position, span.count, span.wanted) for span in spans if span] == [
        (0, 4, 0),
        (4, 4, 2),
        (8, 2, 2),
        (10, 1, 1),
        (11, 1, 1),
    ]
    assert spans[5] is None


def test_a_store_that_is_too_small_for_the_self_test_is_refused(tiny_dirs: dict) -> None:  # type: ignore[type-arg]
    backend = ReferenceBackend.load(tiny_dirs["llama"], pages=4)
    with pytest.raises(ValueError, match="needs 12 pages"):
        self_test(backend)
