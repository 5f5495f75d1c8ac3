"""Choosing the next token: greedy, or drawn from a stream of the slot's own.

The draw for token ``n`` of an answer depends on the seed and on ``n`` alone
(a counter-based generator), so neighbours, channel and worker cannot move it.
Ties go to the lowest id. Sums of probabilities are taken in float64.

The filters, in their order: temperature, top-k, top-p of what that leaves,
min-p. What changes logits before them is in ``penalties``.
"""

from __future__ import annotations

from math import isfinite
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from inference_svc.rows import Float32Array
from kev.domain.question import Sampling

Float64Array: TypeAlias = npt.NDArray[np.float64]
IdArray: TypeAlias = npt.NDArray[np.intp]
_CUTS = (2.0**-8, 2.0**-16)
"""Weights below these are left out at first: what is left is rarely needed, and slow to sort."""
_BLOCK = 512
_BELOW_ONE = 1.0 - 2.0**-53
_SEED_BITS = (1 << 64) - 1
COLDEST = 1e-4
"""Temperatures below this are greedy: the division would leave the range of numbers."""


class NonFiniteLogits(ArithmeticError):
    """A logit row holds NaN or an infinity: this channel's answer cannot be trusted."""


class Sampler:
    """One slot's choice of tokens.

    Args:
        sampling: Temperature (below ``COLDEST`` is greedy), top-k (0 is off), top-p (1 is off), min-p (0 is off).
        seed: Of the slot's random stream; taken modulo 2**64.
    """

    def __init__(self, sampling: Sampling, seed: int) -> None:
        self.greedy = sampling.temperature < COLDEST
        self._temperature = np.float32(sampling.temperature)
        self._top_k = sampling.top_k
        self._top_p = sampling.top_p
        self._min_p = np.float32(sampling.min_p)
        self._stream = np.random.Philox(key=seed & _SEED_BITS)
        self._state = self._stream.state

    def pick(self, logits: Float32Array, step: int) -> int:
        """The next token.

        Args:
            logits: float32 ``[vocab]``.
            step: How many tokens the answer has already.

        Raises:
            NonFiniteLogits: a logit is NaN or infinite.
        """
        if self.greedy:
            best = int(logits.argmax())
            # To both, a NaN is the most extreme of all: two numbers tell of every one, in one pass less.
            if not (isfinite(logits[best]) and isfinite(logits.min())):
                raise _not_finite(step)
            return best
        check_finite(logits, step)
        ids, weights = self._candidates(logits)
        if self._min_p > 0:
            ids, weights = _likely(ids, weights, self._min_p)
        place = _draw(weights, self._uniform(step))
        return place if ids is None else int(ids[place])

    def _uniform(self, step: int) -> float:
        """The stream's number ``step``: in [0, 1), 53 bits."""
        self._state["state"]["counter"][:] = (step, 0, 0, 0)
        self._stream.state = self._state
        return float(self._stream.random_raw() >> 11) * 2.0**-53

    def _candidates(self, logits: Float32Array) -> tuple[IdArray | None, Float32Array]:
        """Token ids that may be drawn (None for all), and their weights (not normalised)."""
        if 0 < self._top_k < len(logits):
            ids = largest(logits, self._top_k)
            return _nucleus(ids, self._weights(logits[ids]), self._top_p)
        weights = self._weights(logits)
        return (None, weights) if self._top_p >= 1 else _top_p(weights, self._top_p)

    def _weights(self, logits: Float32Array) -> Float32Array:
        """Weights in proportion to the probabilities; the largest is 1."""
        weights: Float32Array = np.exp((logits - logits.max()) / self._temperature)
        return weights


def check_finite(logits: Float32Array, step: int) -> None:
    """For rows that are changed before ``pick`` sees them.

    Raises:
        NonFiniteLogits: a logit is NaN or infinite.
    """
    if not np.isfinite(logits).all():
        raise _not_finite(step)


def _not_finite(step: int) -> NonFiniteLogits:
    return NonFiniteLogits(f"a logit is not finite at token {step} of the answer")


def _likely(ids: IdArray | None, weights: Float32Array, min_p: np.float32) -> tuple[IdArray, Float32Array]:
    """The candidates with at least ``min_p`` of the largest weight, which is 1."""
    kept = np.flatnonzero(weights >= min_p)
    return (kept if ids is None else ids[kept]), weights[kept]


def largest(logits: Float32Array, count: int) -> IdArray:
    """Ids of the ``count`` largest logits, largest first; among equals the lower id first."""
    threshold = np.partition(logits, len(logits) - count)[len(logits) - count]
    above = np.flatnonzero(logits > threshold)
    level = np.flatnonzero(logits == threshold)[: count - len(above)]
    return _sorted(np.concatenate([above, level]), logits)


def _sorted(ids: IdArray, values: Float32Array) -> IdArray:
    """Ids by falling value; among equals the lower id first."""
    return ids[np.lexsort((ids, -values[ids]))]


def _top_p(weights: Float32Array, top_p: float) -> tuple[IdArray, Float32Array]:
    """The nucleus of a whole row. It is small as a rule, so only the largest are sorted, and more if need be."""
    wanted = top_p * float(weights.sum(dtype=np.float64))
    ids = np.arange(len(weights))
    for cut in _CUTS:
        some = np.flatnonzero(weights >= cut)
        if float(weights[some].sum(dtype=np.float64)) >= wanted:
            ids = some
            break
    ids = _sorted(ids, weights)
    return _reaching(ids, weights[ids], wanted)


def _nucleus(ids: IdArray, weights: Float32Array, top_p: float) -> tuple[IdArray, Float32Array]:
    """The nucleus of sorted candidates."""
    return (ids, weights) if top_p >= 1 else _reaching(ids, weights, top_p * float(weights.sum(dtype=np.float64)))


def _reaching(ids: IdArray, weights: Float32Array, wanted: float) -> tuple[IdArray, Float32Array]:
    """The fewest leading ids whose weights reach ``wanted``; at least one."""
    count = int(np.searchsorted(np.cumsum(weights, dtype=np.float64), wanted)) + 1
    return ids[:count], weights[:count]


def _draw(weights: Float32Array, uniform: float) -> int:
    """The index whose share of the weights holds ``uniform`` (0 <= uniform < 1).

    First the block, then the place in it: running sums over a whole vocabulary are slow.
    """
    starts = np.arange(0, len(weights), _BLOCK)
    block, rest = _place(np.add.reduceat(weights, starts, dtype=np.float64), uniform)
    first = int(starts[block])
    inside, _ = _place(weights[first : first + _BLOCK].astype(np.float64), rest)
    return first + inside


def _place(shares: Float64Array, uniform: float) -> tuple[int, float]:
    """Where ``uniform`` falls among the shares, and how far into that share, again in [0, 1)."""
    sums = np.cumsum(shares)
    target = uniform * sums[-1]
    index = int(np.searchsorted(sums, target, side="right"))
    if index == len(shares):  # rounding
        index = int(np.flatnonzero(shares)[-1])
    before = sums[index - 1] if index else 0.0
    return index, min(max((target - before) / shares[index], 0.0), _BELOW_ONE)
