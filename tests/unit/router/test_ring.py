"""What users of the ring rely on: everyone agrees, and little moves."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kev.bus.messages import Lane
from router_svc.ring import Ring, stable_hash

BUCKETS = 2048
workers = st.lists(st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True), min_size=2, max_size=8, unique=True)


def _members(names: list[str], channels: int = 4) -> list[Lane]:
    return [Lane(name, channel) for name in names for channel in range(channels)]


def _homes(names: list[str]) -> list[Lane]:
    ring = Ring(_members(names))
    return [ring.home(bucket) for bucket in range(BUCKETS)]


@given(workers, st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_all_routers_agree_whatever_the_order(names: list[str], rng: random.Random) -> None:
    shuffled = _members(names)
    rng.shuffle(shuffled)
    one, two = Ring(_members(names)), Ring(shuffled)
    assert [list(one.walk(bucket)) for bucket in range(16)] == [list(two.walk(bucket)) for bucket in range(16)]


@given(workers)
@settings(max_examples=25, deadline=None)
def test_a_worker_that_joins_or_leaves_moves_at_most_two_nth(names: list[str]) -> None:
    before, after = _homes(names), _homes(names[:-1])
    moved = sum(one != two for one, two in zip(before, after, strict=True))
    assert moved <= 2 * BUCKETS / len(names)
    # Only the buckets of the worker that left move; nobody else's.
    assert all(one.source == names[-1] for one, two in zip(before, after, strict=True) if one != two)


@given(workers)
@settings(max_examples=10, deadline=None)
def test_the_walk_meets_every_channel_once_and_begins_at_home(names: list[str]) -> None:
    ring = Ring(_members(names))
    for bucket in range(8):
        walked = list(ring.walk(bucket))
        assert walked[0] == ring.home(bucket)
        assert sorted(walked) == sorted(_members(names))


def test_homes_are_the_same_in_every_process_and_release() -> None:
    assert stable_hash("bucket 7") == 0x6E64A20F9B240E2C
    ring = Ring(_members(["a", "b"]))
    assert [str(ring.home(bucket)) for bucket in range(4)] == ["b/0", "b/0", "b/1", "b/3"]


def test_an_empty_ring_has_no_home() -> None:
    assert list(Ring().walk(1)) == []
    with pytest.raises(LookupError):
        Ring().home(1)


def test_members_alternate_between_workers() -> None:
    assert [lane.source for lane in Ring(_members(["a", "b"], 2)).members] == ["a", "b", "a", "b"]
