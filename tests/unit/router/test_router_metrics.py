"""What the router tells Prometheus: names, labels, and that lanes which are gone leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY

from kev.bus.messages import EXPRESS, Lane
from kev.domain.outcome import Branch
from kev.tokens.tokenizer import Tokenizer
from router_svc import metrics, savings
from router_svc.breaker import State
from router_svc.normalise import normalise
from router_svc.ring import Ring

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


def test_a_lane_that_comes_back_is_counted_anew():
    for _ in range(2):
        metrics.observe_placed([(5, Branch.HOME, W1)])
        metrics.observe_depths({W1: 1})
        assert value("channel_questions_total", channel="w/1") == 1
        metrics.observe_depths({})


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


def test_the_homes_are_those_of_the_ring_and_old_ones_go():
    metrics.observe_homes(Ring([W1]))
    metrics.observe_homes(ring := Ring([W1, W2]))
    homes = {
        (sample.labels["bucket"], sample.labels["channel"]) for sample in next(iter(metrics.HOME.collect())).samples
    }
    assert homes == {(str(bucket), str(ring.home(bucket))) for bucket in range(64)}
    metrics.configure(65536, 32, 60.0)
    metrics.observe_homes(ring)
    assert not next(iter(metrics.HOME.collect())).samples


def test_savings_count_characters_by_rule_and_tokens(tokenizer: Tokenizer):
    def saved() -> tuple[float, float, float]:
        return (
            value("saved_characters_total", rule="marks") or 0.0,
            value("saved_characters_total", rule="space") or 0.0,
            value("saved_tokens_total") or 0.0,
        )

    before = saved()
    for text in ("  Why???", "Why?", "\ud800 ok"):
        savings.count(text, normalise(text), tokenizer)
    marks, space, tokens = (now - then for now, then in zip(saved(), before, strict=True))
    assert (marks, space) == (2, 2)
    assert tokens == len(tokenizer.encode_text("  Why???", False)) - len(tokenizer.encode_text("Why?", False))


def test_a_depth_that_changes_and_changes_back_is_told():
    for depth in (0, 3, 3, 0):
        metrics.observe_depths({W1: depth})
        assert value("queue_questions", channel="w/1") == depth
        assert value("channel_questions_total", channel="w/1") == 0
