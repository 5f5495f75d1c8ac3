"""Logit rows kept as what can be compared: the logits of a long run would not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeVar

import numpy as np

from inference_svc.backends.port import Backend
from inference_svc.rows import Float32Array
from inference_svc.sample import NonFiniteLogits, Sampler
from inference_svc.verify.lanes import Lane, results
from inference_svc.verify.report import Check

T = TypeVar("T")
BEST = 5


class Mark(NamedTuple):
    """One logit row: a digest of its bits, and whether all of it is finite."""

    digest: bytes
    finite: bool


class Choice(NamedTuple):
    """What is made of a row: the token that its slot's own random stream picks, and log probabilities.

    Attributes:
        token: The token; -1 where a logit is not finite.
        logprobs: The bits of the picked token's log probability, then of the five highest ones, float64.
    """

    token: int
    logprobs: bytes


def mark_of(row: Float32Array) -> Mark:
    """The mark of one row, float32 ``[vocab]``."""
    return Mark(blake2b(row.tobytes(), digest_size=16).digest(), bool(np.isfinite(row).all()))


def choice_of(row: Float32Array, sampler: Sampler, step: int) -> Choice:
    """What a slot's sampler makes of the row at a step of its answer."""
    try:
        token = sampler.pick(row, step)
    except NonFiniteLogits:
        return Choice(-1, b"")
    shifted = row.astype(np.float64) - float(row.max())
    logprobs = shifted - np.log(np.exp(shifted).sum())
    best = np.sort(np.partition(logprobs, -BEST)[-BEST:]) if len(row) > BEST else np.sort(logprobs)
    return Choice(token, np.append(best, logprobs[token]).tobytes())


def watch(backend: Backend, lanes: Sequence[Lane], read: Callable[[int, int, Float32Array], T]) -> list[list[T]]:
    """Runs lanes together and keeps of every scored row what ``read(lane, number, row)`` makes of it.

    Returns:
        Per lane, one item per scored row.
    """
    found: list[list[T]] = [[] for _ in lanes]
    for lane, logits in results(backend, lanes):
        for row in logits:
            found[lane].append(read(lane, len(found[lane]), row))
    return found


def marks(backend: Backend, lanes: Sequence[Lane]) -> list[list[Mark]]:
    """Runs lanes together and keeps their marks."""
    return watch(backend, lanes, lambda lane, number, row: mark_of(row))


def compare_marks(claim: str, expected: Sequence[Sequence[Mark]], found: Sequence[Sequence[Mark]]) -> Check:
    """Holds marks against marks, run by run; rows that are not finite are no pass either."""
    check = equal(claim, "logit rows", expected, found)
    if check.passed and not all(mark.finite for run in expected for mark in run):
        return Check(claim, False, "logits are not finite")
    return check


def equal(claim: str, what: str, expected: Sequence[Sequence[object]], found: Sequence[Sequence[object]]) -> Check:
    """Holds items against items, run by run; the detail says how many are equal, or where they begin to differ."""
    total = sum(len(run) for run in expected)
    wrong = [
        (number, place)
        for number, (left, right) in enumerate(zip(expected, found, strict=True))
        for place, pair in enumerate(zip(left, right, strict=True))
        if pair[0] != pair[1]
    ]
    if not total:
        return Check(claim, False, "nothing was compared")
    if not wrong:
        return Check(claim, True, f"{total} of {total} {what} equal")
    runs = sorted({number for number, _ in wrong})
    number, place = wrong[0]
    detail = f"{total - len(wrong)} of {total} {what} equal; {_listed(runs)} differ, {number} from row {place} on"
    return Check(claim, False, detail)


def _listed(runs: Sequence[int], most: int = 8) -> str:
    shown = ", ".join(str(number) for number in runs[:most])
    return f"questions {shown}{' and others' if len(runs) > most else ''}"
