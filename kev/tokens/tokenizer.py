"""Text to token ids and back, for the model families Kev serves."""

from pathlib import Path

from kev.tokens.gguf_vocab import load_gguf
from kev.tokens.hf_vocab import load_directory
from kev.tokens.vocabulary import TokenizerError, Vocabulary

__all__ = ["Tokenizer", "TokenizerError"]


class Tokenizer:
    """One model's tokenizer. Immutable, and safe to share between threads.

    Attributes:
        vocab_size: Number of token ids.
        longest_piece: Most bytes that one token stands for.
        special: Text -> id of special tokens. Only a template or the model may use them, never a user's text.
        bos_id: Begin-of-text id, or None.
        adds_bos: Whether raw text is meant to begin with `bos_id`.
        eos_ids: Ids that end an answer.
        chat_template: Jinja source, or None.
        digest: The same in every process for the same vocabulary, merges, pre-tokenizer and chat template.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._backends = (vocabulary.backend_inner, vocabulary.backend)
        self._pieces = vocabulary.pieces
        self.vocab_size = len(vocabulary.pieces)
        self.longest_piece = max(1, max(map(len, vocabulary.pieces), default=1))
        self.special = dict(vocabulary.special)
        self.bos_id = vocabulary.bos_id
        self.adds_bos = vocabulary.adds_bos
        self.eos_ids = vocabulary.eos_ids
        self.chat_template = vocabulary.chat_template
        self.digest = vocabulary.digest

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Read the tokenizer of a GGUF file or of a Hugging Face directory.

        Raises:
            TokenizerError: it cannot be read, or is of a kind that is not supported.
            FileNotFoundError: nothing is there.
        """
        place = Path(path)
        return cls(load_directory(place) if place.is_dir() else load_gguf(place))

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that ordinary text never becomes."""
        return frozenset(self.special.values())

    def encode_text(self, text: str, at_start: bool = True) -> list[int]:
        """Token ids of ordinary text. No text, whatever it holds, becomes a special token.

        Args:
            text: Valid Unicode (no lone surrogates).
            at_start: Whether it begins a prompt; some vocabularies put a space before the first word there.

        Raises:
            ValueError: the text holds a lone surrogate.
        """
        _check(text)
        # The fast way does not look for the tokens' places. Other threads may run meanwhile.
        (found,) = self._backends[at_start].encode_batch_fast([text], add_special_tokens=False)
        return found.ids

    def encode_spans(self, text: str, at_start: bool = True) -> tuple[list[int], list[tuple[int, int]]]:
        """Like `encode_text`, with the characters `[start, end)` of `text` that each token stands for."""
        _check(text)
        (found,) = self._backends[at_start].encode_batch([text], add_special_tokens=False)
        return found.ids, found.offsets

    def token_bytes(self, token: int) -> bytes:
        """Bytes that a token adds to the text: part of a character at times, nothing for a special token.

        Raises:
            ValueError: no such token.
        """
        if not 0 <= token < self.vocab_size:
            raise ValueError(f"token: {token} is not a token id; allowed: 0 to {self.vocab_size - 1}")
        return self._pieces[token]

    def decode(self, ids: list[int]) -> str:
        """Text of token ids; bytes that are no valid UTF-8 become U+FFFD, special tokens nothing."""
        return b"".join([self.token_bytes(token) for token in ids]).decode("utf-8", "replace")


def _check(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("text: holds a lone surrogate; only valid Unicode has tokens") from error
