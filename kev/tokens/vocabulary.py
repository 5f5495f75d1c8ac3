"""What a tokenizer is made of, whichever file it came from."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer as Backend

END_MARKS = frozenset(
    {
        "<|im_end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "</s>",
        "<end_of_turn>",
    }
)
"""Special tokens that end an answer in every family that has them, whether or not the file says so."""


class TokenizerError(ValueError):
    """The model's tokenizer cannot be read or is of a kind Kev does not support; the text says which are."""


@dataclass(frozen=True)
class Vocabulary:
    """One model's vocabulary, ready to use.

    Attributes:
        backend: BPE over ordinary text. It knows no special token, so no text can become one.
        backend_inner: The same for text that is not at the start of a prompt (no space put in front).
        pieces: Bytes of each token id; empty for ids that stand for no text.
        special: Text -> id of the tokens that only a template or the model may use.
        bos_id: Begin-of-text token, or None.
        eos_ids: Tokens that end an answer.
        adds_bos: Whether raw text is meant to begin with `bos_id`.
        chat_template: Jinja source, or None.
        digest: Hex digest of everything that decides what ids a prompt becomes.
    """

    backend: Backend
    backend_inner: Backend
    pieces: list[bytes]
    special: dict[str, int]
    bos_id: int | None
    eos_ids: frozenset[int]
    adds_bos: bool
    chat_template: str | None
    digest: str


def byte_alphabet() -> dict[str, int]:
    """Character -> byte of byte-level vocabularies (GPT-2's printable alphabet).

    Bytes that print keep their own Latin-1 character; the other 68 take U+0100 onwards, in order.
    """
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printing}
    others = [byte for byte in range(256) if byte not in set(printing)]
    return table | {chr(0x100 + index): byte for index, byte in enumerate(others)}


def byte_level_piece(piece: str, alphabet: dict[str, int]) -> bytes:
    """Bytes of one byte-level piece; a piece outside the alphabet is taken as plain text."""
    try:
        return bytes([alphabet[char] for char in piece])
    except KeyError:
        return piece.encode("utf-8", "replace")


def spaced_piece(piece: str) -> bytes:
    """Bytes of one sentencepiece-style piece: U+2581 is a space, `<0xNN>` a byte."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        try:
            return bytes([int(piece[3:5], 16)])
        except ValueError:
            pass
    return piece.replace("▁", " ").encode("utf-8", "replace")


def digest_of(*parts: Any) -> str:
    """A digest that is the same in every process: SHA-256 over canonical JSON, 32 hex digits."""
    total = hashlib.sha256()
    for part in parts:
        total.update(part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode())
        total.update(b"\x00")
    return total.hexdigest()[:32]


def end_ids(special: dict[str, int], named: set[int]) -> frozenset[int]:
    """Tokens that end an answer: those the file names, and the well-known marks among the special tokens."""
    return frozenset(named | {token for text, token in special.items() if text in END_MARKS})
