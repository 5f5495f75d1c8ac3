"""The text the router hashes: questions that mean the same should look the same here. No model ever reads it."""

import re
import unicodedata
from functools import cache

from router_svc.normalise.lexicon import lexicon
from router_svc.normalise.protect import CJK

_WIDE = re.compile(f"[{CJK}]")
_QUOTES = str.maketrans(dict.fromkeys("“”‘’「」『』《》【】", " "))
_WIDE_MARKS, _MARKS = "、。…\n", ",.!?;:~'\"()"
_BREAKS = re.compile(
    f"[{_WIDE_MARKS}{_MARKS}]"  # any mark, so that the search is fast; then the rest of its run, by where that stands
    f"(?:(?<=[{_WIDE_MARKS}])[{_WIDE_MARKS}]*"
    f"|(?<=[{_MARKS}])[{_MARKS}]*(?=\\s|$|[{CJK}])"
    f"|(?<=[\\s{CJK}][{_MARKS}])[{_MARKS}]*"
    f"|(?<=^[\"'(])[\"'(]*)"
)
_PARTICLE_AFTER = 4
_Phrases = dict[str, tuple[tuple[str, ...], ...]]


def fold(text: str) -> str:
    """Compatibility forms, case and runs of white space folded away."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).lower()
        return " ".join(unicodedata.normalize("NFKC", text).split())
    return " ".join(text.lower().split())


def routing_text(prompt_text: str) -> str:
    """The folded text without punctuation around words, fillers, greetings and thanks.

    A text of nothing else is only folded, so that it never comes out empty.
    """
    folded = fold(prompt_text)
    plain = folded if folded.isascii() else folded.translate(_QUOTES)
    clauses = [_without_fillers(clause) for clause in _BREAKS.split(plain)]
    return " ".join(clause for clause in clauses if clause) or folded


def _without_fillers(clause: str) -> str:
    clause = clause.strip()
    if not clause:
        return ""
    if not clause.isascii() and _WIDE.search(clause):
        clause = _without_chinese(clause)
    return _without_english(clause) if clause else ""


def _without_chinese(clause: str) -> str:
    whole, front = _chinese_patterns()
    if whole.fullmatch(clause):
        return ""
    words = lexicon("zh")
    rest = front.sub("", clause) or clause
    bare = rest.rstrip(words.particle)
    return bare if len(bare) >= _PARTICLE_AFTER else rest


@cache
def _chinese_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    words = lexicon("zh")
    fillers = sorted({*words.leading, *words.thanks}, key=len, reverse=True)
    whole = re.compile(f"(?:{'|'.join(map(re.escape, fillers))})+[{words.particle}]*")
    return whole, re.compile(f"^(?:{'|'.join(map(re.escape, words.routing))})+")


def _without_english(clause: str) -> str:
    words = clause.split()
    if clause in lexicon("en").leading:
        return ""
    phrases = _english_phrases()
    if phrases.keys().isdisjoint(words):
        return " ".join(words)
    kept: list[str] = []
    at = 0
    while at < len(words):
        length = _phrase_at(words, at, phrases[words[at]]) if words[at] in phrases else 0
        if not length:
            kept.append(words[at])
        at += length or 1
    return " ".join(kept)


def _phrase_at(words: list[str], at: int, phrases: tuple[tuple[str, ...], ...]) -> int:
    """How many words the longest of the phrases takes at `at`; 0 when none stands there."""
    for phrase in phrases:
        if tuple(words[at : at + len(phrase)]) == phrase:
            return len(phrase)
    return 0


@cache
def _english_phrases() -> _Phrases:
    """First word -> phrases that begin with it, the longest first."""
    table: dict[str, list[tuple[str, ...]]] = {}
    for phrase in lexicon("en").routing:
        words = tuple(phrase.split())
        table.setdefault(words[0], []).append(words)
    return {first: tuple(sorted(phrases, key=len, reverse=True)) for first, phrases in table.items()}
