"""Private characters that keep a user's text apart from a template's special tokens while both are one string."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

_PRIVATE = ((0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))


@dataclass(frozen=True, slots=True)
class MarkPair:
    """Two private characters that no message holds: `guard` breaks and fences, `edge` fences the question."""

    guard: str
    edge: str

    def strip(self, text: str) -> str:
        """The text without any mark."""
        return text.replace(self.guard, "").replace(self.edge, "")


class Marks:
    """Puts marks into contents so that no special token can be spelled with them.

    Args:
        special: The texts of the special tokens.
        avoid: Text whose characters are never used as marks (the template's own source).

    Attributes:
        spaced: Whether a special token's text holds white space.
    """

    def __init__(self, special: Iterable[str], avoid: str = "") -> None:
        texts = sorted((text for text in special if len(text) > 1), key=len, reverse=True)
        # A position where any special token begins, overlapping ones too: each is broken behind its first character.
        self._begins = re.compile(f"(?s)(?=(?:{'|'.join(map(re.escape, texts))}))." if texts else r"(?!)")
        self._avoid = set(avoid).union(*texts)
        self.spaced = any(char.isspace() for text in texts for char in text)

    def pick(self, contents: list[str]) -> MarkPair:
        """Two marks that occur in none of the contents.

        Raises:
            ValueError: the contents hold every private character of Unicode.
        """
        found = self.free(2, contents)
        if len(found) < 2:
            raise ValueError("messages: hold every private-use character; allowed: fewer of them")
        return MarkPair(*found)

    def free(self, count: int, contents: list[str]) -> str:
        """The first so many private characters that occur in none of the contents; fewer where there are no more."""
        free = (char for char in _private() if char not in self._avoid and not any(char in text for text in contents))
        return "".join(islice(free, count))

    def guard(self, content: str, marks: MarkPair, question: bool = False) -> str:
        """The content with marks: inside every special token's text, and at both ends.

        White space at the ends stays outside, so that a template may trim it as it is used to. A content of
        nothing else gets no mark, so that a template still sees it as empty.
        """
        inner = content.strip()
        if not inner:
            return content
        start = 0 if self.spaced else content.index(inner[0])
        end = len(content) if self.spaced else start + len(inner)
        fence = marks.edge if question else marks.guard
        broken = self._begins.sub(lambda found: found.group() + marks.guard, content[start:end])
        return content[:start] + fence + broken + fence + content[end:]


def _private() -> Iterator[str]:
    for first, last in _PRIVATE:
        yield from map(chr, range(first, last + 1))
