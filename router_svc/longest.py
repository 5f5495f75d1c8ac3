"""Texts that cannot fit whatever their tokens are: told from their bytes, before they cost memory. Pure.

Tokenising a million characters takes hundreds of megabytes for a moment. But no token stands for more bytes than the
longest piece of the vocabulary, so a text's bytes say how many tokens it has at least.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Longest:
    """The bound of a deployment.

    Attributes:
        max_context: Tokens of prompt and answer together.
        piece: Most bytes that one token stands for.
        counted: Up to so many characters, tokens are counted exactly; about 50 MB for a moment by default.
    """

    max_context: int
    piece: int
    counted: int = 150_000

    def least_tokens(self, texts: list[str]) -> int:
        """Tokens that these texts have at least; 0 where that is of no interest, as they may well fit, or are short
        enough to be counted exactly."""
        chars = sum(map(len, texts))
        if chars <= self.counted or 4 * chars < self.max_context * self.piece:
            return 0
        found = sum(_bytes(text) for text in texts) // self.piece
        return found if found >= self.max_context else 0

    def first(self, text: str) -> str:
        """The beginning of a text, with more tokens than can fit, and no more than that needs."""
        most = self.max_context * self.piece
        return text.encode("utf-8", "replace")[: most + self.piece].decode("utf-8", "ignore").rstrip()


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
