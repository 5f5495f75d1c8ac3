"""What the router tells Prometheus: names, labels, and that lanes which are gone leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY

from kev.bus.messages import EXPRESS, Lane
from kev.domain.outcome import Branch
from router_svc import metrics
from router_svc.breaker import State

W1, W2 = Lane("w", 1), Lane("w", 2)


def clear() -> None:
    metrics.observe_depths({})
    metrics.QUESTIONS.clear()
    metrics.CHANNEL_QUESTIONS.clear()


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """The process's metrics are shared: other tests' routers have counted too."""
    metrics.configure(64, 32, 60.0)
    clear()
    yield
    clear()


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"kev_router_{name}", labels)


def test_placed_questions_count_by_bucket_branch_and_channel():
    metrics.observe_placed([(5, Branch.HOME, W1), (5, Branch.HOME, W1), (5, Branch.SPILL_RING, W2)])
    assert value("questions_total", bucket="5", branch="home") == 2
    assert value("questions_total", bucket="5", branch="spill_ring") == 1
    assert value("channel_questions_total", channel="w/1") == 2


def test_a_question_without_a_bucket_counts_too():
    metrics.observe_placed([(-1, Branch.EXPRESS, EXPRESS)])
    assert value("questions_total", bucket="none", branch="express") == 1


def test_many_buckets_share_few_labels():
    metrics.configure(65536, 32, 60.0)
    metrics.observe_placed([(bucket, Branch.HOME, W1) for bucket in range(0, 65536, 100)])
    labels = {sample.labels["bucket"] for metric in metrics.QUESTIONS.collect() for sample in metric.samples}
    assert len(labels) == 64


def test_a_lane_that_is_gone_leaves_no_series():
    metrics.observe_placed([(5, Branch.HOME, W1)])
    metrics.observe_depths({W1: 3, EXPRESS: 1})
    assert value("queue_questions", channel="w/1") == 3
    metrics.observe_depths({EXPRESS: 2})
    assert value("queue_questions", channel="w/1") is None
    assert value("channel_questions_total", channel="w/1") is None
    assert value("queue_questions", channel="express") == 2


def test_a_breaker_is_seen_until_it_is_closed_again():
    metrics.observe_breakers({7: State.OPEN, 8: State.HALF_OPEN})
    assert value("breaker_state", bucket="7") == 2
    assert value("breaker_state", bucket="8") == 1
    metrics.observe_breakers({})
    assert value("breaker_state", bucket="7") == 0


def test_alerts_know_the_bounds():
    assert value("queue_bound_questions") == 32
    assert value("timeout_seconds") == 60
    assert value("hash_buckets") == 64


def test_names_hold_their_service_and_base_units():
    names = [metric.name for metric in REGISTRY.collect() if metric.name.startswith("kev_router_")]
    assert names
    assert not [name for name in names if name.endswith(("_ms", "_milliseconds", "_kb", "_mb", "_minutes"))]
