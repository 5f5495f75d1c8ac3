"""The bucket of a question. Pure: the same text gets the same bucket in every router."""

from __future__ import annotations

from typing import Protocol

from kev.config.settings import Strategy
from router_svc.assign import NO_BUCKET
from router_svc.ring import stable_hash


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


def bucketing(strategy: Strategy, buckets: int) -> Bucketing:
    """The strategy's object."""
    match strategy:
        case Strategy.ROUND_ROBIN:
            return RoundRobin()
        case Strategy.CONSISTENT_HASH:
            return ConsistentHash(buckets)
