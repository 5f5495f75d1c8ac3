"""The bucket of a question. Pure: the same text gets the same bucket in every router."""

from __future__ import annotations

from typing import Protocol

from kev.config.settings import RouterSettings
from kev.domain.question import Strategy
from router_svc.assign import NO_BUCKET
from router_svc.ring import stable_hash
from router_svc.semantic.codebook import Codebook
from router_svc.semantic.salience import Salience
from router_svc.semantic.table import Table


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
        if self._codebook is not None:
            return self._codebook.bucket(self._table.embed(routing_text))
        return stable_hash(self._salience.key(routing_text)) % self._buckets


def bucketing(settings: RouterSettings) -> Bucketing:
    """The strategy that the deployment chose.

    Raises:
        NoVectors, BadCodebook: ``semantic_hash`` lacks a file; the text says what to do.
    """
    match settings.strategy:
        case Strategy.ROUND_ROBIN | Strategy.LENGTH_AWARE:
            return RoundRobin()
        case Strategy.CONSISTENT_HASH:
            return ConsistentHash(settings.hash_buckets)
        case Strategy.SEMANTIC_HASH:
            table, codebook = Table.load(), None
            if settings.codebook:
                codebook = Codebook.load(settings.codebook, table=table.digest, buckets=settings.hash_buckets)
            return SemanticHash(settings.hash_buckets, table, codebook)
