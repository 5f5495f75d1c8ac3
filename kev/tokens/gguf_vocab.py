"""The vocabulary inside a GGUF file (`tokenizer.ggml.*`)."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import models

from kev.tokens import pretokenizers
from kev.tokens.gguf_meta import GgufError, read_metadata
from kev.tokens.spaced_bpe import spaced_backend
from kev.tokens.vocabulary import (
    TokenizerError,
    Vocabulary,
    byte_alphabet,
    byte_level_piece,
    digest_of,
    end_ids,
    spaced_piece,
)

_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_ALLOWED = "gpt2 (byte-level BPE) and llama (sentencepiece BPE)"


def load_gguf(path: Path) -> Vocabulary:
    """Read the vocabulary of a GGUF file; the tensors are not touched.

    Raises:
        TokenizerError: no vocabulary in it, or one of a kind that is not supported.
    """
    try:
        meta = read_metadata(path)
    except GgufError as error:
        raise TokenizerError(str(error)) from error
    model = meta.get("tokenizer.ggml.model")
    if not meta.get("tokenizer.ggml.tokens"):
        raise TokenizerError(f"{path.name}: it holds no vocabulary (tokenizer.ggml.tokens)")
    if model not in ("gpt2", "llama"):
        raise TokenizerError(f"{path.name}: tokenizer.ggml.model is {model!r}; allowed: {_ALLOWED}")
    try:
        return _vocabulary(meta, model)
    except TokenizerError:
        raise
    except Exception as error:  # the tokenizers library raises bare Exception for a bad vocabulary
        raise TokenizerError(f"{path.name}: its vocabulary is damaged: {error}") from error


def _vocabulary(meta: dict[str, Any], model: str) -> Vocabulary:
    texts = [piece.decode("utf-8", "replace") for piece in meta["tokenizer.ggml.tokens"]]
    kinds = _kinds(meta, len(texts))
    structural = [
        kind in (_UNKNOWN, _CONTROL) or _is_markup(kind, text) for kind, text in zip(kinds, texts, strict=True)
    ]
    special = {text: token for token, text in enumerate(texts) if structural[token] and kinds[token] != _UNKNOWN}
    backend = _byte_level(meta, texts, structural) if model == "gpt2" else _spaced(meta, texts, kinds, structural)
    named = {meta[f"tokenizer.ggml.{name}_token_id"] for name in ("eos", "eot", "eom") if _has(meta, name)}
    template = meta.get("tokenizer.chat_template")
    return Vocabulary(
        backend=backend,
        backend_inner=backend,
        pieces=_pieces(texts, kinds, model),
        special=special,
        bos_id=meta["tokenizer.ggml.bos_token_id"] if _has(meta, "bos") else None,
        eos_ids=end_ids(special, named),
        adds_bos=bool(meta.get("tokenizer.ggml.add_bos_token", model == "llama")),
        chat_template=template,
        digest=_digest(meta),
    )


def _kinds(meta: dict[str, Any], count: int) -> list[int]:
    """Token types; a file without them names its special tokens by id only."""
    kinds = list(meta.get("tokenizer.ggml.token_type") or [_NORMAL] * count)
    if len(kinds) != count:
        raise TokenizerError(f"tokenizer.ggml.token_type has {len(kinds)} entries for {count} tokens")
    for name in ("bos", "eos", "eot", "eom", "padding"):
        if _has(meta, name) and kinds[meta[f"tokenizer.ggml.{name}_token_id"]] == _NORMAL:
            kinds[meta[f"tokenizer.ggml.{name}_token_id"]] = _CONTROL
    return kinds


def _has(meta: dict[str, Any], name: str) -> bool:
    token = meta.get(f"tokenizer.ggml.{name}_token_id")
    return token is not None and 0 <= token < len(meta["tokenizer.ggml.tokens"])


def _is_markup(kind: int, text: str) -> bool:
    """A user-defined token has a meaning for the model (`<think>`), unless it is only white space."""
    return kind == _USER and not text.isspace() and text.strip("▁") != ""


def _byte_level(meta: dict[str, Any], texts: list[str], structural: list[bool]) -> Backend:
    name = meta.get("tokenizer.ggml.pre", "default")
    try:
        splitter = pretokenizers.pre_tokenizer(name)
    except ValueError as error:
        raise TokenizerError(str(error)) from error
    pairs = [tuple(merge.decode("utf-8", "replace").split(" ", 1)) for merge in meta.get("tokenizer.ggml.merges", [])]
    vocab = {text: token for token, text in enumerate(texts) if not structural[token]}
    backend = Backend(models.BPE(vocab, pairs, ignore_merges=pretokenizers.takes_whole_words(name)))
    backend.pre_tokenizer = splitter
    normalizer = pretokenizers.normalizer(name)
    if normalizer is not None:
        backend.normalizer = normalizer
    return backend


def _spaced(meta: dict[str, Any], texts: list[str], kinds: list[int], structural: list[bool]) -> Backend:
    scores = meta.get("tokenizer.ggml.scores")
    if scores is None or len(scores) != len(texts):
        raise TokenizerError("tokenizer.ggml.scores is missing or has another length than the token list")
    unknown = next((text for text, kind in zip(texts, kinds, strict=True) if kind == _UNKNOWN), None)
    vocab = {text: token for token, text in enumerate(texts) if not structural[token] or text == unknown}
    rank = {text: scores[token] for text, token in vocab.items() if kinds[token] in (_NORMAL, _USER)}
    return spaced_backend(vocab, rank, unknown, bool(meta.get("tokenizer.ggml.add_space_prefix", True)))


def _pieces(texts: list[str], kinds: list[int], model: str) -> list[bytes]:
    alphabet = byte_alphabet()
    out = []
    for text, kind in zip(texts, kinds, strict=True):
        if kind in (_CONTROL, _UNKNOWN, _UNUSED):
            out.append(b"")
        elif kind == _USER:
            out.append(text.replace("▁", " ").encode() if model == "llama" else text.encode())
        else:
            out.append(byte_level_piece(text, alphabet) if model == "gpt2" else spaced_piece(text))
    return out


def _digest(meta: dict[str, Any]) -> str:
    """Over every tokenizer key, lists of pieces included, in the order of their names."""
    parts: list[Any] = []
    for key in sorted(key for key in meta if key.startswith("tokenizer.")):
        value = meta[key]
        pieces = isinstance(value, list) and value and isinstance(value[0], bytes)
        parts += [key, b"\n".join(value) if pieces else value]
    return digest_of(*parts)
