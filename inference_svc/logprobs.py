"""Log probabilities of chosen tokens: the model's own, before penalties, bias, constraint, temperature and filters."""

from __future__ import annotations

import numpy as np

from inference_svc.rows import Float32Array
from inference_svc.sample import largest
from kev.domain.outcome import ChosenToken, TokenLogprob
from kev.tokens.tokenizer import Tokenizer


def chosen_token(tokenizer: Tokenizer, logits: Float32Array, token: int, top: int) -> ChosenToken:
    """The record of one choice.

    Natural logarithms, summed in float64 over the whole row in a fixed order.

    Args:
        logits: A finite row, float32 ``[vocab]``.
        token: What was chosen.
        top: How many of the likeliest tokens are listed; of equals the lower id first.
    """
    most = np.float64(logits.max())
    total = most + np.log(np.exp(logits.astype(np.float64) - most).sum())

    def record(one: int) -> TokenLogprob:
        return TokenLogprob(one, tokenizer.token_bytes(one), float(np.float64(logits[one]) - total))

    likeliest = largest(logits, min(top, len(logits))).tolist() if top else []
    return ChosenToken(record(token), tuple(record(one) for one in likeliest))
