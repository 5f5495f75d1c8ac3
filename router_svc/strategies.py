"""The bucket of a question: the same text gets the same bucket in every router."""

from __future__ import annotations

import threading
from typing import Protocol

from kev.config.settings import RouterSettings
from kev.config.source import ConfigError
from kev.domain.errors import NotServed
from kev.domain.question import Strategy
from router_svc.assign import NO_BUCKET
from router_svc.pre_buckets import PreBuckets
from router_svc.ring import stable_hash
from router_svc.semantic.codebook import Codebook
from router_svc.semantic.salience import Salience
from router_svc.semantic.table import Table

_TELLING_CHARS = 10_000
"""Where a long text's bucket goes by meaning, its beginning tells it: the rest would cost time and memory."""


class Bucketing(Protocol):
    """A strategy."""

    def bucket(self, routing_key: str, routing_text: str) -> int:
        """The question's bucket, or ``NO_BUCKET``.

        Args:
            routing_key: The caller's own key, or empty.
            routing_text: The question, folded for hashing.
        """


class RoundRobin:
    """No buckets: questions take the channels in turn."""

    def bucket(self, routing_key: str, routing_text: str) -> int:
        """See ``Bucketing``."""
        return NO_BUCKET


class ConsistentHash:
    """Equal keys share a bucket; without a key, equal questions do."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets

    def bucket(self, routing_key: str, routing_text: str) -> int:
        """See ``Bucketing``."""
        return stable_hash(routing_key or routing_text) % self._buckets


class SemanticHash:
    """Questions about the same thing share a bucket.

    Without a codebook: by the most telling word. With one: by the nearest centroid.
    """

    def __init__(self, buckets: int, table: Table, codebook: Codebook | None = None) -> None:
        self._buckets = buckets
        self._table = table
        self._salience = Salience(table)
        self._codebook = codebook

    def bucket(self, routing_key: str, routing_text: str) -> int:
        """See ``Bucketing``. A key of the caller's own is hashed as it is."""
        if routing_key:
            return stable_hash(routing_key) % self._buckets
        routing_text = routing_text[:_TELLING_CHARS]
        if self._codebook is not None:
            return self._codebook.bucket(self._table.embed(routing_text))
        return stable_hash(self._salience.key(routing_text)) % self._buckets


class Strategies:
    """The strategies that batches may ask for. The deployment's own is made at once, others when they are first asked
    for: the word vectors of ``semantic_hash`` take a moment and some memory.

    Raises:
        NoVectors, BadCodebook: the deployment's own strategy lacks a file.
    """

    def __init__(self, settings: RouterSettings) -> None:
        self._settings = settings
        self._made = {settings.strategy: bucketing(settings)}
        self._lock = threading.Lock()

    def made(self, asked: Strategy | None) -> Bucketing | None:
        """What ``of`` answers with, if that can be had without reading files."""
        return self._made.get(self.name(asked))

    def of(self, asked: Strategy | None) -> Bucketing:
        """The strategy that a batch asks for, or the deployment's. From any thread; may read files.

        Raises:
            NotServed: this deployment lacks what the strategy needs; names it.
        """
        strategy = self.name(asked)
        if strategy is Strategy.LENGTH_AWARE and not self._settings.long_channels:
            raise NotServed("batch.strategy: length_aware needs long channels; router.long_channels is 0 here")
        with self._lock:
            if strategy not in self._made:
                self._made[strategy] = self._make(strategy)
            return self._made[strategy]

    def name(self, asked: Strategy | None) -> Strategy:
        """What ``of`` answers with."""
        return asked or self._settings.strategy

    def _make(self, strategy: Strategy) -> Bucketing:
        try:
            return bucketing(self._settings.model_copy(update={"strategy": strategy}))
        except ConfigError as error:
            raise NotServed(f"batch.strategy: {strategy} is not served here: {error}") from error


class ByType:
    """A strategy behind rules that give each type of questions buckets of its own, also to those with a key."""

    def __init__(self, inner: Bucketing, types: PreBuckets) -> None:
        self._inner = inner
        self.types = types

    def bucket(self, routing_key: str, routing_text: str) -> int:
        """See ``Bucketing``."""
        return self.types.place(self._inner.bucket(routing_key, routing_text), routing_text)


def bucketing(settings: RouterSettings) -> Bucketing:
    """The strategy that the settings name.

    Raises:
        NoVectors, BadCodebook: ``semantic_hash`` lacks a file; the text says what to do.
    """
    if settings.strategy in (Strategy.ROUND_ROBIN, Strategy.LENGTH_AWARE):
        return RoundRobin()
    found = _hashing(settings)
    return ByType(found, PreBuckets(settings.pre_buckets, settings.hash_buckets)) if settings.pre_buckets else found


def _hashing(settings: RouterSettings) -> Bucketing:
    if settings.strategy is Strategy.CONSISTENT_HASH:
        return ConsistentHash(settings.hash_buckets)
    table, codebook = Table.load(), None
    if settings.codebook:
        codebook = Codebook.load(settings.codebook, table=table.digest, buckets=settings.hash_buckets)
    return SemanticHash(settings.hash_buckets, table, codebook)
