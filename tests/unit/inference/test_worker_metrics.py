"""What a worker tells Prometheus: names, labels, and how many series there can be."""

from __future__ import annotations

from collections import Counter

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from inference_svc.channels import Phase
from inference_svc.metrics import WorkerMetrics
from inference_svc.report import End, Report
from kev.domain.outcome import Audit, FinishReason, Outcome, Status

CHANNELS, PAGES, BUCKETS = 16, 512, 64


@pytest.fixture
def metrics() -> WorkerMetrics:
    return WorkerMetrics(CHANNELS, PAGES, buckets=BUCKETS)


def outcome(**changes: object) -> Outcome:
    audit = {"channel": "w/3", "channel_id": 3, "bucket": 7, "branch": "home", "queued_ms": 1500.0}
    fields = {"status": Status.ANSWERED, "finish_reason": FinishReason.STOP, "attempt": 1, "audit": Audit(**audit)}
    return Outcome("id", "rid", 0, **(fields | changes))  # type: ignore[arg-type]


def value(metrics: WorkerMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"kev_inference_{name}", labels)


def test_a_mixed_forward_is_counted_by_the_kind_of_its_rows(metrics: WorkerMetrics):
    phases = Counter({Phase.DECODE: 3, Phase.PREFILL: 1})
    metrics.turn(
        Report(
            (), (), 1, rows=20, channels=4, seconds=0.04, phases=phases, pages_free=400, prefill_rows=17, pages_prefix=8
        )
    )
    assert value(metrics, "rows_total", kind="prefill") == 17
    assert value(metrics, "rows_total", kind="decode") == 3
    assert value(metrics, "forward_seconds_sum", phase="mixed") == 0.04
    assert value(metrics, "channels", state="free") == CHANNELS - 4
    regions = {region: value(metrics, "kv_region_pages", region=region) for region in ("free", "prefix", "channel")}
    assert regions == {"free": 400, "prefix": 8, "channel": PAGES - 408}


def test_forwards_of_one_kind_have_their_own_times(metrics: WorkerMetrics):
    metrics.turn(Report((), (), 1, rows=20, channels=1, seconds=0.5, prefill_rows=20))
    metrics.turn(Report((), (), 2, rows=2, channels=2, seconds=0.25))
    assert value(metrics, "forward_seconds_sum", phase="prefill") == 0.5
    assert value(metrics, "forward_seconds_sum", phase="decode") == 0.25


def test_a_cancel_counts_the_forwards_that_it_came_too_late_for(metrics: WorkerMetrics):
    for finish, overran, started in (
        ("cancelled", 1, 1.0),
        ("cancelled", 0, 1.0),
        ("stop", 0, 1.0),
        ("cancelled", 0, None),
    ):
        metrics.end(End(1, FinishReason(finish), "", 0, 2, started, 2.0, overran=overran))
    assert value(metrics, "cancel_forwards_count") == 2
    assert value(metrics, "cancel_forwards_bucket", le="0.0") == 1


def test_an_outcome_counts_where_it_ran_and_how_long_it_waited(metrics: WorkerMetrics):
    metrics.settled(outcome())
    assert value(metrics, "outcomes_total", status="answered") == 1
    assert value(metrics, "questions_total", branch="home") == 1
    assert value(metrics, "channel_questions_total", channel="3") == 1
    assert value(metrics, "queue_seconds_sum", bucket="7") == 1.5
    assert value(metrics, "retaken_questions_total") == 0


def test_a_dead_letter_is_counted(metrics: WorkerMetrics):
    metrics.settled(outcome(status=Status.FAILED, reason="crashed", attempt=4, audit=Audit()))
    assert value(metrics, "dead_letters_total") == 1
    assert value(metrics, "retaken_questions_total") == 1
    assert value(metrics, "outcomes_total", status="failed") == 1


def test_checks_and_the_self_test_are_seen(metrics: WorkerMetrics):
    metrics.turn(Report((), (), checks=2))
    metrics.checked("failed")
    metrics.self_test(True)
    assert value(metrics, "integrity_checks_total", result="passed") == 2
    assert value(metrics, "integrity_checks_total", result="failed") == 1
    assert value(metrics, "self_test_passed") == 1


def test_series_stay_below_two_thousand_however_much_happens(metrics: WorkerMetrics):
    for bucket in range(-1, BUCKETS):
        for status in Status:
            audit = Audit(channel="w/1", channel_id=bucket % CHANNELS, bucket=bucket, branch="home")
            metrics.settled(outcome(status=status, audit=audit))
    for branch in ("home", "spill_ring", "spill_least", "overflow", "express", "background", "adopted"):
        metrics.settled(outcome(audit=Audit(channel="w/1", channel_id=1, bucket=1, branch=branch)))
    for finish in FinishReason:
        metrics.end(End(1, finish, "", 1, 1, 0.0, 1.0))
    series = [line for line in generate_latest(metrics.registry).decode().splitlines() if not line.startswith("#")]
    assert 800 < len(series) < 2000


def test_names_hold_their_service_and_base_units(metrics: WorkerMetrics):
    metrics.settled(outcome())
    names = {metric.name for metric in metrics.registry.collect()}
    assert all(name.startswith("kev_inference_") for name in names)
    assert not [name for name in names if name.endswith(("_ms", "_milliseconds", "_kb", "_mb", "_minutes"))]


@pytest.mark.parametrize("channels", [1, 300])
def test_two_workers_in_one_process_keep_their_own_metrics(channels: int):
    first, second = WorkerMetrics(channels, PAGES), WorkerMetrics(channels, PAGES, CollectorRegistry())
    first.self_test(True)
    assert value(second, "self_test_passed") == 0
