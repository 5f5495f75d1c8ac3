"""What a slot's own tokens, and its bias, do to a logit row before a token is chosen.

In this order, each on the result of the one before:

1. repetition: the logit of every token in prompt or answer is divided by the
   penalty if it is positive, else multiplied by it;
2. frequency and presence: for a token that the answer holds ``n`` times,
   ``n * frequency + presence`` is taken off;
3. bias: the given number is added to the logits of the given ids.

Computed in float64, kept within float32. A row depends on nothing but the
model's logits and the slot's own tokens.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from inference_svc.rows import Float32Array, Int32Array
from kev.domain.question import Sampling

Ids: TypeAlias = npt.NDArray[np.intp]
Values: TypeAlias = npt.NDArray[np.float64]
_MOST = float(np.finfo(np.float32).max)


class Penalties:
    """One slot's penalties and bias.

    Args:
        prompt: Token ids of the prompt, int32.
        vocab: Length of a logit row. Ids from there on have no logit and are passed over.
    """

    def __init__(self, sampling: Sampling, prompt: Int32Array, vocab: int) -> None:
        self._repetition = sampling.repetition_penalty
        self._frequency, self._presence = sampling.frequency_penalty, sampling.presence_penalty
        self._counts: Counter[int] = Counter()
        bias = {token: value for token, value in sorted(sampling.logit_bias.items()) if 0 <= token < vocab}
        self._biased: Ids = np.array(list(bias), dtype=np.intp)
        self._bias: Values = np.array(list(bias.values()), dtype=np.float64)
        self._of_prompt: Ids = np.unique(prompt[(prompt >= 0) & (prompt < vocab)]).astype(np.intp)

    @staticmethod
    def wanted(sampling: Sampling) -> bool:
        """Whether a question's rows are changed at all."""
        penalties = sampling.frequency_penalty or sampling.presence_penalty
        return bool(sampling.repetition_penalty != 1 or penalties or sampling.logit_bias)

    def add(self, token: int) -> None:
        """Takes note of a token of the answer."""
        self._counts[token] += 1

    def applied(self, logits: Float32Array) -> Float32Array:
        """A changed copy of a finite row, float32 ``[vocab]``."""
        changed = logits.copy()
        held: Ids = np.fromiter(self._counts, dtype=np.intp, count=len(self._counts))
        if self._repetition != 1:
            ids = np.union1d(self._of_prompt, held)
            values = changed[ids].astype(np.float64)
            _put(changed, ids, np.where(values > 0, values / self._repetition, values * self._repetition))
        if len(held) and (self._frequency or self._presence):
            counts = np.fromiter(self._counts.values(), dtype=np.float64, count=len(held))
            _put(changed, held, changed[held].astype(np.float64) - (counts * self._frequency + self._presence))
        if len(self._biased):
            _put(changed, self._biased, changed[self._biased].astype(np.float64) + self._bias)
        return changed


def _put(row: Float32Array, ids: Ids, values: Values) -> None:
    row[ids] = np.clip(values, -_MOST, _MOST).astype(np.float32)
