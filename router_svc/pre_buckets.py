"""Buckets by question type before the hash: questions of two types never share a bucket.

A type owns a run of the buckets, as many as its share says; what no rule
matches has the rest. Within its run the strategy chooses as always.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from itertools import accumulate

import regex

from kev.config.settings import PreBucket, pre_bucket_widths
from router_svc import metrics
from router_svc.normalise.routing_text import fold

log = logging.getLogger(__name__)
LOOKED_AT = 2_000
"""So many characters of a routing text are looked at."""
TIMEOUT_S = 0.02
"""Longest time for one pattern: one that goes astray on a text does not match it."""
_LETTER = "[a-z0-9]"


class PreBuckets:
    """The rules of a deployment. The same text has the same type in every router.

    Args:
        buckets: All hash buckets there are.
    """

    def __init__(self, rules: Sequence[PreBucket], buckets: int) -> None:
        widths = pre_bucket_widths(rules, buckets)
        firsts = [0, *accumulate(widths)]
        self._names = [rule.name for rule in rules]
        self._patterns = [_patterns(rule) for rule in rules]
        self._runs = [*zip(firsts, [*widths, buckets - sum(widths)], strict=True)]

    def place(self, bucket: int, routing_text: str) -> int:
        """The bucket of a question whose strategy chose ``bucket`` among all of them."""
        first, width = self._runs[self._index(routing_text)]
        return first + bucket % width

    def type_of(self, routing_text: str) -> str:
        """Name of the first rule that matches; empty if none does."""
        index = self._index(routing_text)
        return self._names[index] if index < len(self._names) else ""

    def _index(self, routing_text: str) -> int:
        text = routing_text[:LOOKED_AT]
        for index, patterns in enumerate(self._patterns):
            if any(self._found(pattern, text, index) for pattern in patterns):
                return index
        return len(self._patterns)

    def _found(self, pattern: regex.Pattern[str], text: str, index: int) -> bool:
        try:
            return pattern.search(text, timeout=TIMEOUT_S) is not None
        except TimeoutError:
            metrics.ASTRAY.labels(self._names[index]).inc()
            log.warning("router.pre_buckets: the pattern of %s took too long and was given up", self._names[index])
            return False


def _patterns(rule: PreBucket) -> list[regex.Pattern[str]]:
    texts = ["|".join(_keyword(fold(word)) for word in rule.keywords), rule.pattern]
    return [regex.compile(text, regex.IGNORECASE) for text in texts if text]


def _keyword(word: str) -> str:
    """Whole words in scripts that have such: ``card`` is not in ``discard``, but 退款 is in 请退款吧."""
    before = f"(?<!{_LETTER})" if re.match(_LETTER, word) else ""
    after = f"(?!{_LETTER})" if re.search(f"{_LETTER}$", word) else ""
    return f"{before}{regex.escape(word)}{after}"
