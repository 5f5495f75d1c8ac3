"""Settings of the bus say what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from kev.bus.settings import BusSettings
from kev.domain.errors import InvalidArgument


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("urls", ()),
        ("namespace", "a.b"),
        ("namespace", ""),
        ("namespace", "Kev"),
        ("replicas", 2),
        ("queue_bound", 0),
        ("shared_lane_bound", 0),
        ("follow_buffer", 0),
        ("ack_wait_s", 0.0),
        ("lease_s", -1.0),
    ],
)
def test_what_is_not_allowed_is_named(field: str, value: Any):
    with pytest.raises(InvalidArgument, match=field):
        BusSettings(**{field: value})


def test_a_record_must_outlive_every_question():
    settings = BusSettings(result_ttl_s=100.0, ack_wait_s=10.0)
    settings.check_timeout(39.0)
    with pytest.raises(InvalidArgument, match="result_ttl_s"):
        settings.check_timeout(40.0)


@pytest.mark.parametrize(("shared", "bound"), [(1, 8), (8, 8), (9, 16), (64, 64), (1000, 1000)])
def test_a_shared_lane_is_made_of_whole_queues(shared: int, bound: int):
    assert BusSettings(queue_bound=8, shared_lane_bound=shared).shared_bound == bound


def test_no_secret_is_printed():
    settings = BusSettings(urls=("nats://kev:secret@host:4222",), user="kev", password="secret", token="secret")
    assert "secret" not in repr(settings)
