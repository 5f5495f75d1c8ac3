"""Counts what normalisation saved: characters by rule, and tokens."""

from __future__ import annotations

from kev.tokens.tokenizer import Tokenizer
from router_svc import metrics
from router_svc.normalise.normalise import Normalised

MOST_CHARS = 20_000
"""Of a longer question only the characters are counted: it is not worth being tokenised once more."""


def count(text: str, asked: Normalised, tokenizer: Tokenizer) -> None:
    """Counts one question. Costs nothing where nothing was saved.

    Args:
        text: What the client sent.
        asked: The same, normalised.
    """
    if not asked.chars_saved:
        return
    for rule, chars in asked.saved.items():
        if chars:
            metrics.SAVED_CHARS.labels(rule).inc(chars)
    if len(text) <= MOST_CHARS:
        metrics.SAVED_TOKENS.inc(max(0, _tokens(text, tokenizer) - _tokens(asked.prompt_text, tokenizer)))


def _tokens(text: str, tokenizer: Tokenizer) -> int:
    return len(tokenizer.encode_text(text.encode("utf-8", "replace").decode(), False))
