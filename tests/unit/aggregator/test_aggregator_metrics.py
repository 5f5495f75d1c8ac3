"""What the aggregator tells Prometheus: names, units, and labels that stay few."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY

from aggregator_svc import metrics
from kev.domain.outcome import Audit, FinishReason, Outcome, Status

KNOWN_LABELS = {"status", "le"}


def families() -> list[object]:
    return [metric for metric in REGISTRY.collect() if metric.name.startswith("kev_aggregator_")]


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"kev_aggregator_{name}", labels) or 0.0


def outcome(status: Status, **audit: object) -> Outcome:
    return Outcome("id", "rid", 0, status, FinishReason.STOP, audit=Audit(**audit))  # type: ignore[arg-type]


def test_labels_are_few_and_never_a_request_or_a_tenant():
    for status in Status:
        metrics.observe_end(outcome(status, channel="w/1", queued_ms=1.0, elapsed_ms=1.0))
    labels = {name for metric in families() for sample in metric.samples for name in sample.labels}
    assert labels <= KNOWN_LABELS


def test_times_are_in_seconds_and_reach_from_milliseconds_to_a_minute():
    histograms = [metric for metric in families() if metric.type == "histogram"]
    assert {metric.name.removeprefix("kev_aggregator_") for metric in histograms} >= {
        "first_token_seconds",
        "inter_token_seconds",
        "end_to_end_seconds",
    }
    assert all(metric.name.endswith("_seconds") for metric in histograms)
    assert (metrics.LADDER[0], metrics.LADDER[-1]) == (0.005, 60)


def test_first_texts_and_pauses_are_counted_apart():
    before = value("first_token_seconds_count"), value("inter_token_seconds_sum")
    metrics.observe_texts([0.5], [0.25, 0.25])
    assert value("first_token_seconds_count") == before[0] + 1
    assert value("inter_token_seconds_sum") == before[1] + 0.5


def test_only_a_slot_that_ran_has_an_end_to_end_time():
    before = value("end_to_end_seconds_count", status="refused"), value("end_to_end_seconds_sum", status="answered")
    metrics.observe_end(outcome(Status.REFUSED))
    metrics.observe_end(outcome(Status.ANSWERED, channel="w/1", queued_ms=500.0, elapsed_ms=1000.0))
    assert value("end_to_end_seconds_count", status="refused") == before[0]
    assert value("end_to_end_seconds_sum", status="answered") == before[1] + 1.5


def test_equal_durations_are_counted_as_often_as_they_came():
    before = [value(f"inter_token_seconds_{part}") for part in ("count", "sum")]
    below = value("inter_token_seconds_bucket", le="0.05"), value("inter_token_seconds_bucket", le="0.1")
    metrics.observe_texts([], [0.05] * 16 + [0.0625])
    assert [value(f"inter_token_seconds_{part}") for part in ("count", "sum")] == pytest.approx(
        [before[0] + 17, before[1] + 0.8625]
    )
    assert value("inter_token_seconds_bucket", le="0.05") == below[0] + 16
    assert value("inter_token_seconds_bucket", le="0.1") == below[1] + 17
    assert value("inter_token_seconds_bucket", le="+Inf") == before[0] + 17
