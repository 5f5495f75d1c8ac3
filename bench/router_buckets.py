"""How well a strategy groups: the chance that two questions share a bucket, same intent against different intents.

    python bench/router_buckets.py labelled.jsonl [--buckets 64] [--train 0.6]

The file holds JSON lines with ``text`` and ``category``. The codebook is fitted, without labels, on a part of the
questions and judged on the others; the rest is judged on all. Prints one JSON line per strategy.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from router_svc.normalise import normalise
from router_svc.semantic.fit import fit
from router_svc.semantic.judge import judged
from router_svc.semantic.table import Table
from router_svc.strategies import ConsistentHash, SemanticHash

TURNS = 5
"""Splits over which the codebook's figures are averaged."""


def figures_of(buckets: Sequence[int], labels: Sequence[str], count: int) -> tuple[float, float, float]:
    """Share of equal pairs in one bucket, of different pairs in one bucket, largest bucket in means."""
    found = judged(buckets, count, labels)
    return found.same or 0.0, found.different or 0.0, found.max_over_mean


def told(name: str, figures: Sequence[float]) -> None:
    """One line."""
    same, different, largest = (round(value, 3) for value in figures)
    print(json.dumps({"strategy": name, "same": same, "different": different, "max_over_mean": largest}))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Judges bucketing strategies.")
    parser.add_argument("file")
    parser.add_argument("--buckets", type=int, default=64)
    parser.add_argument("--train", type=float, default=0.6)
    options = parser.parse_args()
    rows = [json.loads(line) for line in Path(options.file).read_text(encoding="utf-8").splitlines() if line.strip()]
    texts, labels = [normalise(row["text"]).routing_text for row in rows], [row["category"] for row in rows]
    table = Table.load()
    text_hash, semantic = ConsistentHash(options.buckets), SemanticHash(options.buckets, table)
    ways: dict[str, Callable[[str, str], int]] = {"consistent_hash": text_hash.bucket, "semantic_hash": semantic.bucket}
    for name, bucket in ways.items():
        told(name, figures_of([bucket("", text) for text in texts], labels, options.buckets))
    if int(len(rows) * options.train) >= 2 * options.buckets:
        told("semantic_hash with a codebook", unseen(table, texts, labels, options))


def unseen(table: Table, texts: Sequence[str], labels: Sequence[str], options: argparse.Namespace) -> Sequence[float]:
    """The codebook's figures on questions it was not fitted on."""
    figures = []
    for turn in range(TURNS):
        order = np.random.default_rng(turn).permutation(len(texts))
        cut = int(len(texts) * options.train)
        codebook = fit(table, [texts[index] for index in order[:cut]], options.buckets, seed=turn)
        others = order[cut:]
        placed = [codebook.bucket(table.embed(texts[index])) for index in others]
        figures.append(figures_of(placed, [labels[index] for index in others], options.buckets))
    return np.mean(figures, axis=0).tolist()  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
