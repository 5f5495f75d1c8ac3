"""A codebook from a file of questions, with figures that say what it is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kev.app.batchfile.read import BadFile, read_labelled
from router_svc.normalise import normalise
from router_svc.semantic.codebook import Codebook
from router_svc.semantic.fit import fit
from router_svc.semantic.judge import Grouping, judged
from router_svc.semantic.table import Table
from router_svc.strategies import SemanticHash

_HELD_BACK = 0.25
"""Share of the questions that a codebook is judged on without having seen them."""


def fitted(file: str, buckets: int, level: str, seed: int) -> tuple[Codebook, Mapping[str, Grouping]]:
    """A codebook of all questions, and figures: without a codebook, of this one, and of one like it on questions that
    it was not fitted on (where there are enough).

    Args:
        file: Name as for ``read_labelled``.
        level: ``router.normalize``.

    Raises:
        BadFile: it cannot be read, or holds too few questions.
        NoVectors: the word vectors are not installed.
    """
    found = read_labelled(file)
    table = Table.load()
    texts = [normalise(one.text, level).routing_text for one in found]
    intents = [one.intent for one in found] if all(one.intent for one in found) else []
    try:
        codebook = fit(table, texts, buckets, seed=seed)
    except ValueError as error:
        raise BadFile(f"{file}: {error}") from None
    plain = SemanticHash(buckets, table)
    figures = {
        "without a codebook": judged([plain.bucket("", text) for text in texts], buckets, intents),
        "this codebook": judged(_placed(codebook, table, texts), buckets, intents),
    }
    unseen = _unseen(table, texts, intents, buckets, seed)
    return codebook, {**figures, "one like it on questions it has not seen": unseen} if unseen else figures


def _placed(codebook: Codebook, table: Table, texts: Sequence[str]) -> list[int]:
    return [codebook.bucket(table.embed(text)) for text in texts]


def _unseen(table: Table, texts: Sequence[str], intents: Sequence[str], buckets: int, seed: int) -> Grouping | None:
    order = np.random.default_rng(seed).permutation(len(texts))
    cut = int(len(texts) * (1 - _HELD_BACK))
    try:
        codebook = fit(table, [texts[index] for index in order[:cut]], buckets, seed=seed)
    except ValueError:
        return None
    rest = order[cut:]
    placed = _placed(codebook, table, [texts[index] for index in rest])
    return judged(placed, buckets, [intents[index] for index in rest] if intents else ())
