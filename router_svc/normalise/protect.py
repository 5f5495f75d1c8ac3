"""What normalisation never touches: code, quotes, links, paths, patterns."""

import re
from bisect import bisect_left

CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
"""Letters written without spaces between words (and Hangul), as a character class."""

_FENCE = re.compile(r"(?ms)^ {0,3}(```|~~~).*?(?:^ {0,3}\1|\Z)")
_IN_LINE = re.compile(
    r"`[^`\n]*`"
    r'|"[^"\n]*"'
    r"|(?<![\w'])'(?:[^'\n]|''){0,400}'(?!\w)"
    r"|“[^“”\n]*”|‘[^‘’\n]*’|「[^「」\n]*」|『[^『』\n]*』|《[^《》\n]*》|«[^«»\n]*»|【[^【】\n]*】"
    r"|[A-Za-z][A-Za-z0-9+.-]{1,15}://\S+"
    r"|(?<!\S)/[^/\n]{1,200}/[a-z]{0,8}(?!\S)"
    r"|~~[^~\n]+~~"
)
# A line with any of these is taken for code, a pattern, a query or a table, and left alone as a whole.
_CODE = re.compile(r"[`{}=;<>\\|&$^*_@#\[\]]|->|::|\w\(|^(?: {4}|\t)|^\s*(?:[-+/]{2}|>>>|!)")


def fences(text: str) -> list[tuple[int, int]]:
    """`[start, end)` of fenced code blocks; one that is not closed reaches to the end."""
    if "```" not in text and "~~~" not in text:
        return []
    return [found.span() for found in _FENCE.finditer(text)]


def spans_in_line(line: str) -> list[tuple[int, int]]:
    """`[start, end)` of quotes, inline code, links and patterns of one line."""
    return [found.span() for found in _IN_LINE.finditer(line)]


def looks_like_code(line: str) -> bool:
    """Whether a line holds signs that prose does not use. Wrong in doubt, and then nothing is changed."""
    return _CODE.search(line) is not None


class Spans:
    """Ordered, disjoint `[start, end)` ranges of a text."""

    def __init__(self, spans: list[tuple[int, int]]) -> None:
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]

    def cover(self, start: int, end: int) -> bool:
        """Whether `[start, end)` overlaps one of them."""
        last = bisect_left(self._starts, end) - 1
        return last >= 0 and self._ends[last] > start
