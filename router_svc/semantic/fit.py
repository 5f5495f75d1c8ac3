"""Fits a codebook: spherical k-means over the deployment's own questions, with no bucket left too large."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from router_svc.semantic.codebook import Codebook
from router_svc.semantic.table import Floats, Table

LARGEST = 2.0
"""A bucket with more questions than so many means is split, as far as that goes."""
_ROUNDS, _STARTS, _SPLITS = 25, 12, 3


def fit(table: Table, texts: Sequence[str], buckets: int, *, seed: int = 0) -> Codebook:
    """A codebook for questions like these.

    Args:
        texts: Routing texts, at least two per bucket; the more, the better.
        seed: The same seed and texts give the same codebook.

    Raises:
        ValueError: too few different questions.
    """
    vectors = table.embed_all(texts)
    if len(np.unique(vectors.round(5), axis=0)) < 2 * buckets:
        raise ValueError(f"a codebook of {buckets} buckets needs at least {2 * buckets} different questions")
    centre = vectors.mean(axis=0)
    points = _units(vectors - centre)
    rng = np.random.default_rng(seed)
    fits = [_kmeans(points, buckets, rng) for _ in range(_STARTS)]
    best = max(fits, key=lambda centroids: _closeness(points, centroids))
    return Codebook(table.digest, centre, _balanced(points, best, rng), len(texts))


def _units(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), dtype=np.float32)


def _closeness(points: Floats, centroids: Floats) -> float:
    return float((points @ centroids.T).max(axis=1).sum())


def _kmeans(points: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Far-apart starts, then rounds of assigning and averaging."""
    first = points[rng.integers(len(points))]
    chosen, gaps = [first], 1 - points @ first
    for _ in range(count - 1):
        chances = np.maximum(gaps, 1e-9).astype(np.float64)
        chosen.append(points[rng.choice(len(points), p=chances / chances.sum())])
        gaps = np.minimum(gaps, 1 - points @ chosen[-1])
    return _settled(points, np.stack(chosen), rng, _ROUNDS)


def _settled(points: Floats, centroids: Floats, rng: np.random.Generator, rounds: int) -> Floats:
    for _ in range(rounds):
        nearest = np.argmax(points @ centroids.T, axis=1)
        sums = np.zeros_like(centroids)
        np.add.at(sums, nearest, points)
        for empty in np.flatnonzero(np.bincount(nearest, minlength=len(centroids)) == 0):
            sums[empty] = points[rng.integers(len(points))]
        moved = _units(sums)
        if np.array_equal(moved, centroids):
            break
        centroids = moved
    return centroids


def _balanced(points: Floats, centroids: Floats, rng: np.random.Generator) -> Floats:
    """Splits what is too large; the smallest buckets give up their place for the halves."""
    for _ in range(_SPLITS):
        nearest = np.argmax(points @ centroids.T, axis=1)
        sizes = np.bincount(nearest, minlength=len(centroids))
        large = np.flatnonzero(sizes > LARGEST * len(points) / len(centroids))
        if not len(large):
            break
        small = np.argsort(sizes, kind="stable")[: len(large)]
        centroids = centroids.copy()
        for big, little in zip(large, small, strict=True):
            centroids[big], centroids[little] = _kmeans(points[nearest == big], 2, rng)
        centroids = _settled(points, centroids, rng, 2)
    return centroids
