"""Choosing the next token: greedy, or drawn from a stream of the slot's own.

The draw for token ``n`` of an answer depends on the seed and on ``n`` alone
(a counter-based generator), so neighbours, channel and worker cannot move it.
Ties go to the lowest id. Probabilities are computed in float64.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from inference_svc.rows import Float32Array
from kev.domain.question import Sampling

Float64Array: TypeAlias = npt.NDArray[np.float64]
IdArray: TypeAlias = npt.NDArray[np.intp]
_FIRST_GUESS = 256
_SEED_BITS = (1 << 64) - 1
COLDEST = 1e-4
"""Temperatures below this are greedy: the division would leave the range of numbers."""


class NonFiniteLogits(ArithmeticError):
    """A logit row holds NaN or an infinity: this channel's answer cannot be trusted."""


class Sampler:
    """One slot's choice of tokens.

    Args:
        sampling: Temperature (below ``COLDEST`` is greedy), top-k (0 is off), top-p (1 is off).
        seed: Of the slot's random stream; taken modulo 2**64.
    """

    def __init__(self, sampling: Sampling, seed: int) -> None:
        self.greedy = sampling.temperature < COLDEST
        self._temperature = sampling.temperature
        self._top_k = sampling.top_k
        self._top_p = sampling.top_p
        self._key = seed & _SEED_BITS

    def pick(self, logits: Float32Array, step: int) -> int:
        """The next token.

        Args:
            logits: float32 ``[vocab]``.
            step: How many tokens the answer has already.

        Raises:
            NonFiniteLogits: a logit is NaN or infinite.
        """
        if not np.isfinite(logits).all():
            raise NonFiniteLogits(f"a logit is not finite at token {step} of the answer")
        if self.greedy:
            return int(np.argmax(logits))
        ids, weights = self._candidates(logits)
        return int(ids[_draw(weights, self._uniform(step))])

    def _uniform(self, step: int) -> float:
        stream = np.random.Philox(key=self._key, counter=step)
        return float(np.random.Generator(stream).random())

    def _candidates(self, logits: Float32Array) -> tuple[IdArray, Float64Array]:
        """Token ids that may be drawn, and their weights (not normalised)."""
        scaled = logits.astype(np.float64) / self._temperature
        weights = np.exp(scaled - scaled.max())
        if 0 < self._top_k < len(weights):
            ids = _largest(logits, self._top_k)
            return _nucleus(ids, weights[ids], float(weights[ids].sum()), self._top_p)
        if self._top_p < 1:
            return _top_p(logits, weights, self._top_p)
        return np.arange(len(weights)), weights


def _largest(logits: Float32Array, count: int) -> IdArray:
    """Ids of the ``count`` largest logits, largest first; among equals the lower id first."""
    threshold = np.partition(logits, len(logits) - count)[len(logits) - count]
    above = np.flatnonzero(logits > threshold)
    level = np.flatnonzero(logits == threshold)[: count - len(above)]
    ids = np.concatenate([above, level])
    return ids[np.lexsort((ids, -logits[ids]))]


def _top_p(logits: Float32Array, weights: Float64Array, top_p: float) -> tuple[IdArray, Float64Array]:
    """The nucleus of the whole row. It is small as a rule, so only the largest are sorted, and more if need be."""
    total = float(weights.sum())
    count = min(_FIRST_GUESS, len(weights))
    while True:
        ids = _largest(logits, count)
        kept = weights[ids]
        if count == len(weights) or kept.sum() >= top_p * total:
            return _nucleus(ids, kept, total, top_p)
        count = min(count * 8, len(weights))


def _nucleus(ids: IdArray, weights: Float64Array, total: float, top_p: float) -> tuple[IdArray, Float64Array]:
    """The fewest leading ids whose weights reach ``top_p`` of ``total``; at least one."""
    if top_p >= 1:
        return ids, weights
    count = int(np.searchsorted(np.cumsum(weights), top_p * total)) + 1
    return ids[:count], weights[:count]


def _draw(weights: Float64Array, uniform: float) -> int:
    """The index whose share of the weights holds ``uniform`` (0 <= uniform < 1)."""
    sums = np.cumsum(weights)
    index = int(np.searchsorted(sums, uniform * sums[-1], side="right"))
    return min(index, int(np.flatnonzero(weights)[-1]))
