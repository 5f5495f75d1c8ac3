"""Bounded load: no channel is buried, no question is refused without need, and the branch says why."""

from __future__ import annotations

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kev.bus.messages import BACKGROUND, EXPRESS, Lane
from kev.domain.outcome import Branch
from kev.domain.question import Priority
from router_svc.assign import NO_BUCKET, Assigner
from router_svc.breaker import BreakerLimits

NORMAL = Priority.NORMAL


def _assigner(workers: int = 2, channels: int = 4, *, factor: float = 1.25, bound: int = 64) -> Assigner:
    assigner = Assigner(load_factor=factor, queue_bound=bound, shared_bound=3, virtual_nodes=16, rng=random.Random(7))
    members = [Lane(f"w{worker}", channel) for worker in range(workers) for channel in range(channels)]
    assigner.set_members(members, shared_lanes=True)
    return assigner


@given(
    st.integers(1, 6),
    st.integers(1, 8),
    st.sampled_from([1.0, 1.25, 2.0]),
    st.lists(st.integers(-1, 5), max_size=120),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_no_channel_gets_a_question_above_the_bound(workers, channels, factor, buckets, rng) -> None:
    assigner = _assigner(workers, channels, factor=factor, bound=1000)
    for count, bucket in enumerate(buckets):
        if count % 20 == 19:  # a poll with any depths
            assigner.loads.mark()
            assigner.loads.observe({lane: rng.randrange(9) for lane in assigner.ring.members})
        placement = assigner.assign(bucket, NORMAL)
        assert placement is not None
        mean = assigner.loads.total / len(assigner.ring)
        assert assigner.loads.of(placement.lane) <= math.ceil(factor * mean)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.floats(1.0, 3.0))
@settings(max_examples=40, deadline=None)
def test_the_bound_never_refuses_while_a_queue_has_room(workers, channels, bound, factor) -> None:
    assigner = _assigner(workers, channels, factor=factor, bound=bound)
    room = workers * channels * bound
    assert all(assigner.assign(3, NORMAL) is not None for _ in range(room))
    assert assigner.room() == 0
    assert assigner.assign(3, NORMAL) is None


def test_a_lone_question_goes_home_and_the_hot_bucket_spills_along_the_ring() -> None:
    assigner = _assigner()
    first = assigner.assign(5, NORMAL)
    assert first is not None
    assert (first.lane, first.branch) == (assigner.ring.home(5), Branch.HOME)
    second = assigner.assign(5, NORMAL)
    assert second is not None
    assert second.branch is Branch.SPILL_RING
    assert second.lane == list(assigner.ring.walk(5))[1]


def test_far_from_home_the_emptier_of_two_channels_is_taken() -> None:
    assigner = _assigner(workers=4, channels=8)
    branches = [assigner.assign(5, NORMAL).branch for _ in range(16)]  # type: ignore[union-attr]
    assert branches[9] is Branch.SPILL_LEAST


def test_without_buckets_the_channels_take_turns() -> None:
    assigner = _assigner()
    placements = [assigner.assign(NO_BUCKET, NORMAL) for _ in range(8)]
    assert {placement.lane for placement in placements if placement} == set(assigner.ring.members)
    assert {placement.branch for placement in placements if placement} == {Branch.HOME}


def test_bands_go_to_the_shared_lanes_up_to_their_bound() -> None:
    assigner = _assigner()
    express = [assigner.assign(1, Priority.EXPRESS) for _ in range(4)]
    assert [placement and placement.lane for placement in express] == [EXPRESS] * 3 + [assigner.ring.home(1)]
    background = [assigner.assign(1, Priority.BACKGROUND) for _ in range(4)]
    assert [placement and placement.lane for placement in background] == [BACKGROUND] * 3 + [None]
    assert {placement.branch for placement in background if placement} == {Branch.BACKGROUND}


def test_with_a_mixed_fleet_bands_go_to_channels() -> None:
    assigner = _assigner()
    assigner.set_members(assigner.ring.members, shared_lanes=False)
    placement = assigner.assign(1, Priority.EXPRESS)
    assert placement is not None
    assert placement.lane == assigner.ring.home(1)


def test_a_barred_worker_gets_nothing() -> None:
    assigner = _assigner()
    placements = [assigner.assign(bucket, NORMAL, frozenset({"w0"})) for bucket in range(20)]
    assert {placement.lane.source for placement in placements if placement} == {"w1"}
    assert assigner.assign(1, NORMAL, frozenset({"w0", "w1"})) is None


def test_a_lane_that_the_broker_called_full_is_left_alone_until_the_next_poll() -> None:
    assigner = _assigner()
    home = assigner.ring.home(5)
    assigner.full(home)
    assert assigner.assign(5, NORMAL).lane != home  # type: ignore[union-attr]
    assigner.loads.mark()
    assigner.loads.observe({})
    assert assigner.loads.of(home) == 0


def test_without_workers_there_is_no_place() -> None:
    assigner = _assigner()
    assigner.set_members([], shared_lanes=False)
    assert assigner.assign(1, NORMAL) is None
    assert assigner.assign(NO_BUCKET, NORMAL) is None
    assert assigner.assign(1, Priority.EXPRESS) is None


def _why(assigner: Assigner, bucket: int = 5, band: Priority = NORMAL, now: float = 0.0) -> str:
    placement = assigner.assign(bucket, band, now=now)
    assert placement is not None
    assert len(placement.why) < 300
    return placement.why


def test_each_placement_says_why() -> None:
    assigner = _assigner(workers=4, channels=8)
    home, second = assigner.ring.near(5, 2)
    told = [_why(assigner) for _ in range(10)]
    assert told[0] == f"home {home} held 0 of at most 1"
    assert told[1] == f"home {home} held 1 of at most 1; {second} held 0, 1 further on the ring"
    assert told[9].startswith(f"home {home} held 1 of at most 1; the next 8 on the ring were no better; w")
    assert assigner.assign(5, NORMAL).home == home  # type: ignore[union-attr]
    assert _why(_assigner(), NO_BUCKET) == "no bucket: channels in turn"
    assert _why(assigner, band=Priority.EXPRESS) == "priority express: the express lane"


def test_an_open_breaker_and_a_full_express_lane_are_named() -> None:
    assigner = Assigner(
        load_factor=4.0,
        queue_bound=64,
        shared_bound=0,
        virtual_nodes=16,
        rng=random.Random(7),
        breaker=BreakerLimits(depth=2, factor=1.5, open_s=9),
    )
    assigner.set_members([Lane("w0", channel) for channel in range(4)], shared_lanes=True)
    assert [_why(assigner).split(";")[0] for _ in range(3)][2] == "breaker of bucket 5 open"
    assert _why(assigner, band=Priority.EXPRESS).startswith("the express lane is full or not for this question; ")


def test_a_question_in_the_overflow_lane_says_so() -> None:
    assigner = Assigner(
        load_factor=1.0, queue_bound=1, shared_bound=2, virtual_nodes=16, rng=random.Random(7), overflow=True
    )
    assigner.set_members([Lane("w0", 0)], shared_lanes=True)
    assert [_why(assigner) for _ in range(2)][1] == "no channel had room: the overflow lane"
