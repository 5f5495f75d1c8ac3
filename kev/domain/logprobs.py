"""How many log probabilities may be asked for: an answer's must fit into one message of the broker. Pure."""

from __future__ import annotations

from kev.domain.question import Question

MOST_TOP = 20
MOST = 20_000
"""Records of one answer; one takes about 45 bytes in the broker's message."""
MOST_OF_BATCH = 500_000
"""Records of one batch: its results must fit into one reply."""


def records(question: Question, default_max_tokens: int) -> int:
    """The most records that a question's answer can have: the chosen token and the likeliest ones, per token."""
    top = question.sampling.logprobs
    if top is None:
        return 0
    return (question.max_tokens or default_max_tokens) * (1 + top)
