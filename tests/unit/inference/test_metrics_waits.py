"""The histogram per bucket says what the library's own would say."""

from __future__ import annotations

import random

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from inference_svc.metrics_waits import LabelledHistogram

EDGES = (0.1, 0.5, 1.0, 10.0)


def lines(registry: CollectorRegistry) -> list[str]:
    return sorted(line for line in generate_latest(registry).decode().splitlines() if "_created" not in line)


def test_it_tells_the_same_as_the_librarys_histogram():
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    mine = LabelledHistogram("kev_wait_seconds", "Waiting.", "bucket", EDGES)
    ours.register(mine)
    other = Histogram("kev_wait_seconds", "Waiting.", ["bucket"], buckets=EDGES, registry=theirs)
    rng = random.Random(7)
    for value in [0.0, *EDGES, *(rng.expovariate(0.5) for _ in range(500))]:
        label = str(rng.randrange(5))
        mine.observe(label, value)
        other.labels(label).observe(value)
    assert [line for line in lines(ours) if line.startswith("kev")] == [
        line for line in lines(theirs) if line.startswith("kev")
    ]


def test_a_name_is_taken_once():
    registry = CollectorRegistry()
    registry.register(LabelledHistogram("kev_wait_seconds", "Waiting.", "bucket", EDGES))
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(LabelledHistogram("kev_wait_seconds", "Waiting.", "bucket", EDGES))
