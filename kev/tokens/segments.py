"""From a rendered prompt with marks to token ids."""

import re
from collections.abc import Sequence

from msgspec import Struct

from kev.tokens.marks import MarkPair
from kev.tokens.tokenizer import Tokenizer

_CACHED_TEXTS = 512
_CACHED_LENGTH = 64


class Encoded(Struct, frozen=True):
    """Ids of a text, and `[start, end)` of those that stand for nothing but the question's content."""

    tokens: list[int]
    question: tuple[int, int]


class Segments:
    """Splits a rendered text on the special tokens in it, and encodes what lies between as ordinary text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        texts = sorted((text for text in tokenizer.special if len(text) > 1), key=len, reverse=True)
        self._special = re.compile(f"({'|'.join(map(re.escape, texts))})" if texts else r"((?!))")
        self._cache: dict[tuple[str, bool], list[int]] = {}

    def starts_special(self, text: str) -> bool:
        """Whether the text begins with a special token."""
        return self._special.match(text) is not None

    def ends_special(self, text: str) -> bool:
        """Whether the text ends with a special token."""
        return bool(text) and self._special.split(text)[-1] == ""

    def encode(self, text: str, marks: MarkPair, at_start: bool = True) -> Encoded:
        """Encode a rendered text; its marks are taken out on the way.

        Args:
            text: Template text and guarded contents.
            marks: The marks of the contents.
            at_start: Whether the text begins the prompt.
        """
        tokens: list[int] = []
        question: tuple[int, int] | None = None
        for index, part in enumerate(self._special.split(text)):
            if index % 2:
                tokens.append(self._tokenizer.special[part])
            elif marks.edge in part:
                found = self._encode_question(part, marks, at_start and not tokens)
                question = question or (len(tokens) + found.question[0], len(tokens) + found.question[1])
                tokens += found.tokens
            elif part:
                tokens += self._encode_plain(part, marks, at_start and not tokens)
        return Encoded(tokens, question or (len(tokens), len(tokens)))

    def around(
        self, text: str, letter: str, marks: MarkPair, at_start: bool
    ) -> tuple[tuple[int, ...], str, str, tuple[int, ...], bool]:
        """A rendered text that holds one letter for the question: ids before the part with that letter, what stands
        in the part before and behind it, ids behind the part, and whether the part begins the prompt."""
        parts = self._special.split(text)
        place = next(index for index, part in enumerate(parts) if letter in part)
        behind = [""] * (1 - place % 2) + parts[place + 1 :]
        head = self.encode("".join(parts[:place]), marks, at_start).tokens
        tail = self.encode("".join(behind), marks, False).tokens
        before, _, after = marks.strip(parts[place]).partition(letter)
        return tuple(head), before, after, tuple(tail), at_start and not head

    def _encode_plain(self, part: str, marks: MarkPair, at_start: bool) -> list[int]:
        """Template text is the same for every prompt, so it is kept; text of a message is not."""
        if marks.guard in part or len(part) > _CACHED_LENGTH:
            return self._tokenizer.encode_text(marks.strip(part), at_start)
        found = self._cache.get((part, at_start))
        if found is None:
            found = self._tokenizer.encode_text(part, at_start)
            if len(self._cache) < _CACHED_TEXTS:
                self._cache[part, at_start] = found
        return found

    def _encode_question(self, part: str, marks: MarkPair, at_start: bool) -> Encoded:
        part = part.replace(marks.guard, "")
        start, end = part.index(marks.edge), part.rindex(marks.edge) - 1
        text = marks.strip(part)
        tokens, spans = self._tokenizer.encode_spans(text, at_start)
        return Encoded(tokens, question_tokens(text, spans, start, end))


def question_tokens(text: str, spans: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int]:
    """``[first, last)`` of the tokens that stand for nothing but the characters ``[start, end)`` of a text, white
    space around them aside; empty, behind the last token, when there are none.

    Args:
        spans: The characters ``[first, last)`` of each token.
    """

    def inside(index: int) -> bool:
        first, last = spans[index]
        if first >= end or last <= start:
            return False
        outside = text[first:start] if first < start else text[end:last]
        return not outside or outside.isspace()

    count = len(spans)
    first = next(filter(inside, range(count)), count)
    last = next(filter(inside, range(count - 1, first, -1)), first)
    return (first, last + 1) if first < count else (count, count)
