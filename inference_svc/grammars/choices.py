"""Answers that are one of given strings."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import numpy as np

from inference_svc.grammars.port import GrammarFailed, Ids
from kev.tokens.tokenizer import Tokenizer

_MOST_KNOWN = 4096
"""So many beginnings are remembered for one list."""
_AFTER = b"\xff"
"""Sorts behind everything that begins like the text before it: no byte of UTF-8 is that high."""


class Pieces:
    """The vocabulary by what its tokens add to a text; special tokens and empty ones are not in it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.of = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
        self.ends = tuple(sorted(tokenizer.eos_ids))
        special = tokenizer.special_ids | tokenizer.eos_ids
        self.ids: dict[bytes, list[int]] = {}
        for token, piece in enumerate(self.of):
            if piece and token not in special:
                self.ids.setdefault(piece, []).append(token)
        self.longest = max(map(len, self.ids), default=0)


class ChoiceList:
    """A list of strings, made ready once for all answers that must be one of them.

    What may come after a beginning depends on the beginning alone, so it is kept; two threads that look at once
    find the same.
    """

    def __init__(self, pieces: Pieces, choices: Iterable[str]) -> None:
        self._pieces = pieces
        self._choices = sorted({choice.encode() for choice in choices})
        self._known: dict[bytes, Ids] = {}
        self.after(b"")

    def begin(self) -> Choice:
        """The constraint of one answer."""
        return Choice(self, self._pieces)

    def after(self, begun: bytes) -> Ids:
        """The token ids that keep the text the beginning of a choice; end tokens where it is one."""
        if (known := self._known.get(begun)) is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[begun] = np.array(sorted(self._found(begun)), dtype=np.intp)
        return known

    def ended(self, text: bytes) -> bool:
        """Whether the text is a choice that no longer one goes on from."""
        return self._with(text) == [text]

    def _with(self, begun: bytes) -> list[bytes]:
        low = bisect_left(self._choices, begun)
        return self._choices[low : bisect_left(self._choices, begun + _AFTER, low)]

    def _found(self, begun: bytes) -> set[int]:
        found: set[int] = set()
        seen = len(begun)
        before = b""
        for choice in self._with(begun):
            if choice == begun:
                found.update(self._pieces.ends)
            shared = _common(before, choice)  # the last choice's beginnings need no second look
            for end in range(max(seen, shared) + 1, min(len(choice), seen + self._pieces.longest) + 1):
                found.update(self._pieces.ids.get(choice[seen:end], ()))
            before = choice
        return found


class Choice:
    """How far one answer is. A ``Grammar``."""

    def __init__(self, among: ChoiceList, pieces: Pieces) -> None:
        self._among = among
        self._pieces = pieces
        self._text = b""

    def allowed(self) -> Ids:
        """See ``Grammar``."""
        ids = self._among.after(self._text)
        if not len(ids):
            raise GrammarFailed("constraint.choices: the model's vocabulary cannot write any of them")
        return ids

    def take(self, token: int) -> bool:
        """See ``Grammar``."""
        if token not in self._among.after(self._text):
            raise GrammarFailed("constraint.choices: a token that was not allowed")
        if token in self._pieces.ends:
            return True
        self._text += self._pieces.of[token]
        return self._among.ended(self._text)


def _common(left: bytes, right: bytes) -> int:
    """How many bytes two texts begin with together."""
    most = min(len(left), len(right))
    return next((at for at in range(most) if left[at] != right[at]), most)
