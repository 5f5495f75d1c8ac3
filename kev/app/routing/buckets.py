"""The buckets as the routers' metrics tell them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kev.app.top.figures import Figures
from kev.wire.labels import NO_BUCKET

_QUESTIONS = "kev_router_questions_total"
_STATES = {0.0: "closed", 1.0: "half-open", 2.0: "open"}


@dataclass(frozen=True, slots=True)
class BucketRow:
    """One bucket, or several neighbours where there are very many.

    Attributes:
        rate: Questions a second.
        share: Of all questions, 0 to 1.
        at_home: Share of its questions that went home.
        home: Channel; empty where the routers name none.
        depth: Questions in the home's queue, of all buckets that live there; None without a home.
        breaker: The worst state of the routers' breakers.
    """

    bucket: str
    rate: float
    share: float
    at_home: float
    home: str
    depth: float | None
    breaker: str


def rows(figures: Figures, *, idle: bool = False) -> list[BucketRow]:
    """The buckets, the busiest first.

    Args:
        idle: Also those that got nothing and whose breaker is closed.
    """
    found = [row for row in _all(figures) if idle or row.rate > 0 or row.breaker != "closed"]
    return sorted(found, key=lambda row: (-row.rate, *_order(row.bucket)))


def max_over_mean(figures: Figures) -> float:
    """Busiest bucket in means over all buckets there are; 0 when nothing happened."""
    rates = [row.rate for row in _all(figures) if row.bucket != NO_BUCKET]
    return max(rates) * len(rates) / sum(rates) if sum(rates) else 0.0


def _all(figures: Figures) -> Iterator[BucketRow]:
    now = figures.now
    rates, home_rates = figures.rates(_QUESTIONS, "bucket"), figures.rates(_QUESTIONS, "bucket", branch="home")
    breakers = _worst(figures)
    homes = _homes(figures)
    depths = now.by("kev_router_queue_questions", "channel")
    whole = sum(rates.values())
    for bucket in {*rates, *homes, *breakers}:
        rate, home = rates.get(bucket, 0.0), homes.get(bucket, "")
        yield BucketRow(
            bucket,
            rate,
            rate / whole if whole else 0.0,
            home_rates.get(bucket, 0.0) / rate if rate else 0.0,
            home,
            _depth(figures, home, depths) if home else None,
            _STATES.get(breakers.get(bucket, 0.0), "closed"),
        )


def _depth(figures: Figures, home: str, depths: dict[str, float]) -> float:
    """Each router tells every queue: their mean, not their sum."""
    series = figures.now.values.get("kev_router_queue_questions", {})
    routers = sum(dict(labels).get("channel") == home for labels in series)
    return depths.get(home, 0.0) / routers if routers else 0.0


def _worst(figures: Figures) -> dict[str, float]:
    worst: dict[str, float] = {}
    for labels, value in figures.now.values.get("kev_router_breaker_state", {}).items():
        bucket = dict(labels).get("bucket", "")
        worst[bucket] = max(value, worst.get(bucket, 0.0))
    return worst


def _homes(figures: Figures) -> dict[str, str]:
    homes: dict[str, str] = {}
    for labels, value in sorted(figures.now.values.get("kev_router_bucket_home", {}).items()):
        told = dict(labels)
        if value:
            homes[told.get("bucket", "")] = told.get("channel", "")
    return homes


def _order(bucket: str) -> tuple[int, str]:
    first = bucket.partition("-")[0]
    return (int(first), "") if first.isdecimal() else (1 << 20, bucket)
