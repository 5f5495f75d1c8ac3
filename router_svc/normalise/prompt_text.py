"""The text the model reads: only what carries no meaning goes, and only where that is certain."""

import re
import unicodedata

from router_svc.normalise.lexicon import lexicon
from router_svc.normalise.protect import CJK, Spans, fences, looks_like_code, spans_in_line

_MARKS = "!?！？؟。，、…~～"
_RUN = re.compile(f"[{_MARKS}][{_MARKS}]+")  # not {2,}: a search for a first character is fast
_INSIDE = re.compile(r"[!?！？؟]{2,}|([。，、~～])\1+|…{3,}")
_WIDE = re.compile(f"[{CJK}]")
_WIDE_MARKS = "！？。，、…～"
_ALPHABETIC_LEFT = re.compile(f"[\\s{CJK}{_WIDE_MARKS}（：；]")
_SIGNS = frozenset("/\\_@#$%^&*=+|<>~`-.")
_SEPARATOR = re.compile(f"[ \\t]*\\n|[,.!~:;]+(?=\\s|[{CJK}])|[，、。！～…：；—]+")
_NOT_SPACE = re.compile(r"\S")
_FIRST_CLAUSE = 40
_LOOK_AHEAD = 100


def collapse_marks(text: str) -> str:
    """Runs of sentence punctuation after a word become one mark each (`?!?!` becomes `?!`)."""
    if not _RUN.search(text):
        return text
    fenced = Spans(fences(text))
    lines, begin = [], 0
    for line in text.split("\n"):
        lines.append(line if fenced.cover(begin, begin + len(line)) else _collapse_line(line))
        begin += len(line) + 1
    return "\n".join(lines)


def _collapse_line(line: str) -> str:
    if not _RUN.search(line) or looks_like_code(line):
        return line
    spans = Spans(spans_in_line(line))

    def fewer(run: re.Match[str]) -> str:
        start, end = run.span()
        if _ends_word(line, start) and _ends_sentence(line, start, end) and not spans.cover(start, end):
            return _INSIDE.sub(_fewer, run.group())
        return run.group()

    return _RUN.sub(fewer, line)


def _fewer(found: re.Match[str]) -> str:
    marks = found.group()
    if marks[0] == "…":
        return "……"
    return "".join(dict.fromkeys(marks))


def _ends_word(text: str, at: int) -> bool:
    """Whether a word of a sentence ends at `at`: an ideograph, or two letters or more that no sign is joined to."""
    begin = at
    while begin > 0 and at - begin < 64 and _is_letter(text[begin - 1]):
        begin -= 1
    if begin == at:
        return False
    left = text[begin - 1] if begin else " "
    if _WIDE.match(text[at - 1]):
        return left not in _SIGNS
    return at - begin >= 2 and _ALPHABETIC_LEFT.match(left) is not None


def _is_letter(char: str) -> bool:
    return char.isalpha() or char in "'’" or unicodedata.category(char) in ("Mn", "Mc") or char == "\u200c"


def _ends_sentence(text: str, start: int, end: int) -> bool:
    """Whether what follows a run can begin a new sentence, so that the run is no operator."""
    rest = text[end : end + 16]
    if not rest:
        return True
    if text[end - 1] in _WIDE_MARKS and rest[0].isalpha():
        return True
    if rest[0] >= "\U0001f000":
        return True
    if not rest[0].isspace():
        return _WIDE.match(rest[0]) is not None and _WIDE.match(text[start - 1]) is not None
    following = rest.lstrip()[:1]
    return not following or following.isalpha() or following >= "\u2e80"


def drop_leading(text: str) -> str:
    """Greetings and hesitations at the front go, where punctuation or a line break sets them apart.

    They stay when nothing would be left to read, when they begin a name ("Hello, World!"), and when the rest asks
    about them ("你好，用英语怎么说").
    """
    at = 0
    while (found := _SEPARATOR.search(text, at, at + _FIRST_CLAUSE)) is not None:
        head = " ".join(text[at : found.start()].casefold().split())
        rest = _NOT_SPACE.search(text, found.end())
        if rest is None or not _may_go(head, text[rest.start() : rest.start() + _LOOK_AHEAD]):
            break
        at = rest.start()
    return text[at:]


def _may_go(head: str, rest: str) -> bool:
    for language in ("en", "zh"):
        if head in lexicon(language).leading:
            return any(char.isalnum() for char in rest) and not _is_about(rest.casefold(), language)
    return False


def _is_about(rest: str, language: str) -> bool:
    words = lexicon(language)
    if language == "zh":
        return rest.startswith(words.keep) or any(word in rest for word in words.about)
    found = re.findall(r"\w+", rest)
    return (bool(found) and found[0] in words.keep) or not set(words.about).isdisjoint(found)


def trim(text: str) -> str:
    """Without blank lines at the front and white space at the end. Indentation stays: it makes a line code."""
    text = text.rstrip().lstrip("\n")
    return text if "\n" in text or text.startswith(("    ", "\t")) else text.lstrip()
