"""Sentencepiece-style BPE ("llama" vocabularies): scores instead of merges, U+2581 for a space, bytes as `<0xNN>`."""

from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers


def spaced_backends(
    vocab: dict[str, int], scores: dict[str, float], unknown: str | None, space_prefix: bool
) -> tuple[Backend, Backend]:
    """Encoders for text at the start of a prompt and for text inside it.

    Args:
        vocab: Piece -> id of everything ordinary text may become, byte pieces included.
        scores: Piece -> score of the pieces that merges may build; the higher, the earlier.
        unknown: The piece for characters that are neither in the vocabulary nor spelled in bytes, or None.
        space_prefix: Whether a space is put before the text at the start.
    """
    merges = _merges(vocab, scores)
    first = _backend(vocab, merges, unknown, space_prefix)
    return first, (_backend(vocab, merges, unknown, False) if space_prefix else first)


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


def _backend(vocab: dict[str, int], merges: list[tuple[str, str]], unknown: str | None, prefix: bool) -> Backend:
    backend = Backend(models.BPE(vocab, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    steps: list[normalizers.Normalizer] = [normalizers.Prepend("▁")] if prefix else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    return backend
