"""Sentencepiece-style BPE ("llama" vocabularies): scores instead of merges, U+2581 for a space, bytes as `<0xNN>`."""

from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers


def spaced_backend(vocab: dict[str, int], scores: dict[str, float], unknown: str | None, space_prefix: bool) -> Backend:
    """The encoder of a sentencepiece vocabulary.

    Args:
        vocab: Piece -> id of everything ordinary text may become, byte pieces included.
        scores: Piece -> score of the pieces that merges may build; the higher, the earlier.
        unknown: The piece for characters that are neither in the vocabulary nor spelled in bytes, or None.
        space_prefix: Whether a space is put before every text, at the start and behind a special token.
    """
    backend = Backend(models.BPE(vocab, _merges(vocab, scores), unk_token=unknown, fuse_unk=True, byte_fallback=True))
    steps: list[normalizers.Normalizer] = [normalizers.Prepend("▁")] if space_prefix else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    return backend


def _merges(vocab: dict[str, int], scores: dict[str, float]) -> list[tuple[str, str]]:
    """Every way to build a piece from two others, best score first: the order in which sentencepiece merges.

    Pieces of one score are built in the order of their ids, and one piece from its earliest parts first.
    """
    found: list[tuple[float, int, int, int, str, str]] = []
    for piece, score in scores.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in scores and right in scores:
                found.append((-score, vocab[piece], vocab[left], vocab[right], left, right))
    return [(left, right) for *_, left, right in sorted(found)]
