"""``llguidance``: JSON schemas and regular expressions over the vocabulary of our own tokenizer.

Its limits bound the work of every step and the memory of every grammar. They do not bound the depth of its recursion
while it compiles: see ``trial``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from inference_svc.grammars.port import GrammarFailed, Ids, Unusable
from kev.domain.question import Constraint
from kev.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

T = TypeVar("T")
MISSING = "constraint: this worker has no llguidance, which JSON schemas and regular expressions need"
LIMITS = {
    "max_items_in_row": 2_000,
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 100_000,
    "step_max_items": 50_000,
    "max_lexer_states": 10_000,
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}
"""A step takes some milliseconds at most, a grammar some tens of megabytes."""
JSON_STYLE: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as most programs write it on one line: a model cannot lose itself in white space."""


class Words(msgspec.Struct, frozen=True):
    """A vocabulary as the library wants it; travels to the trial process.

    Attributes:
        tokens: Bytes of each id.
        special: Ids that text never becomes.
        ends: Ids that end an answer.
    """

    tokens: tuple[bytes, ...]
    special: tuple[int, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Words:
        """The words of a tokenizer."""
        tokens = tuple(tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size))
        return cls(tokens, tuple(sorted(tokenizer.special_ids)), tuple(sorted(tokenizer.eos_ids)))


def installed() -> bool:
    """Whether the library is there."""
    try:
        import llguidance  # noqa: F401
    except ImportError:
        return False
    return True


class Vocabulary:
    """A vocabulary made ready for the library.

    Args:
        encode: Text to token ids, for text that a grammar forces; None does without.

    Raises:
        Unusable: the library is not installed.
    """

    def __init__(self, words: Words, encode: Callable[[str], Sequence[int]] | None = None) -> None:
        if not installed():
            raise Unusable("not_served", MISSING)
        import llguidance

        self._library = llguidance
        self.size = len(words.tokens)
        self._tokenizer: LLTokenizer = llguidance.LLTokenizer(
            _Wrapper(words, encode),  # type: ignore[arg-type]
            eos_token=list(words.ends),
        )

    def compiled(self, constraint: Constraint) -> Matcher:
        """Compiles a schema or an expression, and computes what may come first. May take long, or crash.

        Raises:
            Unusable: it is not valid, cannot be met, or is beyond the limits.
        """
        return guarded(lambda: self._compiled(constraint), _refusal)

    def _compiled(self, constraint: Constraint) -> Matcher:
        matcher = self._library.LLMatcher
        if constraint.json_schema:
            grammar = matcher.grammar_from_json_schema(constraint.json_schema, JSON_STYLE)
        else:
            grammar = matcher.grammar_from_regex(constraint.regex)
        limits = self._library.LLParserLimits(**LIMITS)  # type: ignore[arg-type]
        made = matcher(self._tokenizer, grammar, log_level=0, limits=limits)
        if made.is_error():
            raise ValueError(made.get_error())
        return Matcher(made, self.size)


class Matcher:
    """How far one answer is. A ``Grammar``."""

    def __init__(self, matcher: LLMatcher, size: int) -> None:
        self._matcher = matcher
        self._size = size
        self._next: Ids | None = None
        self._next = self.allowed()

    def allowed(self) -> Ids:
        """See ``Grammar``."""
        known, self._next = self._next, None
        return guarded(self._allowed, _failure) if known is None else known

    def take(self, token: int) -> bool:
        """See ``Grammar``."""
        return guarded(lambda: self._take(token), _failure)

    def _allowed(self) -> Ids:
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._check()
        ids = _ids(bits, self._size)
        if not len(ids):
            raise ValueError("nothing may follow")
        return ids

    def _take(self, token: int) -> bool:
        self._next = None
        self._matcher.consume_token(token)
        self._check()
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error())


def guarded(work: Callable[[], T], become: Callable[[str], Exception]) -> T:
    """Runs the library's code. Its panics are no ``Exception``, but must not end a thread that serves others."""
    try:
        return work()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise become(_said(error)) from None


def _ids(bits: npt.NDArray[np.uint8], size: int) -> Ids:
    return np.flatnonzero(np.unpackbits(bits, count=size, bitorder="little").view(np.bool_))


def _refusal(said: str) -> Exception:
    if "NoExtension" in said:
        return Unusable("invalid", "constraint: no text satisfies it")
    complex_ = any(word in said for word in _COMPLEX)
    return Unusable("too_complex" if complex_ else "invalid", f"constraint: {said}")


def _failure(said: str) -> Exception:
    return GrammarFailed(f"constraint: {said}")


_COMPLEX = ("too large", "too big", "too many", "fuel", "limit", "max is", "Unable to determine")
_MOST_SAID = 200


def _said(error: BaseException) -> str:
    """The first line of an error's text, shortened."""
    text = " ".join(str(error).replace("<non-verbose/>", "").split()) or type(error).__name__
    return text if len(text) <= _MOST_SAID else text[:_MOST_SAID] + "…"


class _Wrapper:
    """What ``LLTokenizer`` takes for a tokenizer."""

    is_tokenizer_wrapper = True

    def __init__(self, words: Words, encode: Callable[[str], Sequence[int]] | None) -> None:
        self.tokens = list(words.tokens)
        self.special_token_ids = list(words.special)
        self.eos_token_id = words.ends[0]
        self.bos_token_id = None
        self._encode = encode

        self._ids = {piece: token for token, piece in enumerate(words.tokens) if piece and token not in words.special}
        self._longest = max(map(len, self._ids), default=1)

    def __call__(self, text: bytes | str) -> list[int]:
        """Ids whose bytes are exactly the text's: the tokenizer's own, or else the longest piece each time."""
        raw = text.encode() if isinstance(text, str) else bytes(text)
        if self._encode is not None:
            ids = list(self._encode(raw.decode("utf-8", "replace")))
            if b"".join(self.tokens[token] for token in ids) == raw:
                return ids
        return self._greedy(raw)

    def _greedy(self, raw: bytes) -> list[int]:
        ids: list[int] = []
        at = 0
        while at < len(raw):
            ends = range(min(at + self._longest, len(raw)), at, -1)
            end = next((end for end in ends if raw[at:end] in self._ids), 0)
            if not end:
                break
            ids.append(self._ids[raw[at:end]])
            at = end
        return ids
