"""How well questions are grouped: figures of a bucketing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Grouping:
    """Figures of one bucketing.

    Attributes:
        questions, used: How many questions, and buckets that got any.
        max_over_mean: Largest bucket in means over all buckets.
        same: Share of the pairs of one intent that are in one bucket; None without intents.
        different: The same for pairs of two intents.
    """

    questions: int
    used: int
    max_over_mean: float
    same: float | None = None
    different: float | None = None


def judged(buckets: Sequence[int], count: int, intents: Sequence[str] = ()) -> Grouping:
    """The figures.

    Args:
        buckets: Of each question, 0 to ``count`` - 1; at least one.
        intents: Of each question; empty where they are not known.
    """
    placed = np.array(buckets)
    sizes = np.bincount(placed, minlength=count)
    largest = float(sizes.max() * count / len(placed))
    same, different = _pairs(placed, intents) if intents else (None, None)
    return Grouping(len(placed), int((sizes > 0).sum()), largest, same, different)


def _pairs(placed: np.ndarray[tuple[int], np.dtype[np.int64]], intents: Sequence[str]) -> tuple[float, float]:
    """From counts, not from pairs: there may be many questions."""
    _, named = np.unique(np.array(intents), return_inverse=True)
    total, one_bucket = _couples(np.array([len(placed)])), _couples(np.bincount(placed))
    one_intent = _couples(np.bincount(named))
    both = _couples(np.unique(np.stack([placed, named]), axis=1, return_counts=True)[1])
    return both / max(1, one_intent), (one_bucket - both) / max(1, total - one_intent)


def _couples(sizes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    return int((sizes * (sizes - 1) // 2).sum())
