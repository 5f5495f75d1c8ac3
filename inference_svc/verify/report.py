"""What a check found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inference_svc.rows import Float32Array


@dataclass(frozen=True, slots=True)
class Check:
    """One claim, tried on a loaded backend.

    Attributes:
        claim: What should hold, as a sentence.
        passed: Whether it held.
        detail: Figures: how much was compared, or where it broke.
    """

    claim: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class SelfTestReport:
    """All checks of a start-up self-test.

    Attributes:
        variant: The backend's variant they were made on.
        checks: In the order they ran.
    """

    variant: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every claim held."""
        return all(check.passed for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if not check.passed)


def same_bits(left: Float32Array, right: Float32Array) -> bool:
    """Equal bit for bit. Minus zero differs from zero, a NaN equals itself."""
    return left.shape == right.shape and left.tobytes() == right.tobytes()


def compare(claim: str, expected: Sequence[Float32Array], found: Sequence[Float32Array]) -> Check:
    """Holds logits against logits, lane by lane.

    Args:
        claim: What should hold.
        expected: Per lane the logits it should have, ``[scored, vocab]``.
        found: Per lane the logits it had.
    """
    rows = sum(len(one) for one in expected)
    wrong = [number for number, pair in enumerate(zip(expected, found, strict=True)) if not same_bits(*pair)]
    if not wrong:
        finite = all(np.isfinite(one).all() for one in expected)
        detail = f"{rows} of {rows} logit rows equal" if finite else "logits are not finite"
        return Check(claim, finite, detail)
    equal = sum(_equal_rows(*pair) for pair in zip(expected, found, strict=True))
    gap = max(_gap(expected[number], found[number]) for number in wrong)
    return Check(claim, False, f"{equal} of {rows} logit rows equal; lanes {wrong} differ, by {gap:.3g} at most")


def all_of(claim: str, checks: Sequence[Check]) -> Check:
    """Several runs of one claim as one check; the first failure gives the detail."""
    failed = next((check for check in checks if not check.passed), None)
    return Check(claim, failed is None, failed.detail if failed else "; ".join(check.detail for check in checks))


def _equal_rows(left: Float32Array, right: Float32Array) -> int:
    return sum(same_bits(one, other) for one, other in zip(left, right, strict=False))


def _gap(left: Float32Array, right: Float32Array) -> float:
    if left.shape != right.shape:
        return float("nan")
    return float(np.abs(left.astype(np.float64) - right).max())
