"""A hot bucket's home is left alone for a while, then tried, then trusted again."""

from __future__ import annotations

import random

import pytest

from kev.bus.messages import OVERFLOW, Lane
from kev.domain.outcome import Branch
from kev.domain.question import Priority
from router_svc.assign import Assigner
from router_svc.breaker import BreakerLimits, Breakers, State

LIMITS = BreakerLimits(depth=8, factor=2.0, open_s=1.0, probe_every=3)


def test_it_trips_only_when_deep_absolutely_and_against_the_mean() -> None:
    breakers = Breakers(LIMITS)
    assert breakers.lets_home(1, depth=7, mean=1.0, now=0)  # not deep
    assert breakers.lets_home(1, depth=100, mean=60.0, now=0)  # all are deep
    assert not breakers.lets_home(1, depth=8, mean=4.0, now=0)
    assert breakers.state(1, 0) is State.OPEN
    assert breakers.lets_home(2, depth=0, mean=4.0, now=0)  # another bucket is another breaker


def test_open_sends_nothing_home_until_its_time_is_over() -> None:
    breakers = Breakers(LIMITS)
    breakers.lets_home(1, 8, 1.0, now=0)
    assert not any(breakers.lets_home(1, 0, 1.0, now=number / 10) for number in range(10))


def test_half_open_lets_every_third_go_home_and_closes_when_the_home_is_no_deeper_than_the_mean() -> None:
    breakers = Breakers(LIMITS)
    breakers.lets_home(1, 8, 1.0, now=0)
    assert breakers.state(1, 1.0) is State.HALF_OPEN
    assert [breakers.lets_home(1, 3, 1.0, now=1.0) for _ in range(6)] == [False, False, True] * 2
    assert [breakers.lets_home(1, 1, 1.0, now=1.0) for _ in range(4)] == [False, False, True, True]
    assert breakers.state(1, 1.0) is State.CLOSED
    assert breakers.not_closed() == ()


def test_half_open_opens_again_when_the_home_is_deep_again() -> None:
    breakers = Breakers(LIMITS)
    breakers.lets_home(1, 8, 1.0, now=0)
    assert not breakers.lets_home(1, 9, 1.0, now=1.5)
    assert breakers.state(1, 2.4) is State.OPEN
    assert breakers.trips == 2


def test_depth_zero_turns_it_off() -> None:
    assert Breakers(BreakerLimits(depth=0)).lets_home(1, 10**6, 0.0, now=0)


@pytest.mark.parametrize("bad", [{"depth": -1}, {"factor": 0.5}, {"open_s": 0}, {"probe_every": 0}])
def test_limits_are_checked(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="breaker"):
        BreakerLimits(**bad)  # type: ignore[arg-type]


def _assigner(**more: object) -> Assigner:
    assigner = Assigner(
        load_factor=6.0,
        queue_bound=10,
        shared_bound=3,
        virtual_nodes=16,
        rng=random.Random(7),
        **more,  # type: ignore[arg-type]
    )
    assigner.set_members([Lane("w", channel) for channel in range(8)], shared_lanes=True)
    return assigner


def test_an_open_breaker_spills_near_home() -> None:
    assigner = _assigner(breaker=BreakerLimits(depth=2, factor=2.0, open_s=1.0))
    placements = [assigner.assign(5, Priority.NORMAL, now=0.0) for _ in range(6)]
    walk = list(assigner.ring.walk(5))
    steps = [walk.index(placement.lane) for placement in placements if placement]
    assert steps[:3] == [0, 1, 0]
    assert set(steps[3:]) <= {1, 2}
    assert assigner.breakers.not_closed() == (5,)


def test_the_overflow_lane_takes_what_has_no_room_up_to_its_own_bound() -> None:
    assigner = _assigner(overflow=True)
    for _ in range(80):
        assert assigner.assign(5, Priority.NORMAL) is not None
    more = [assigner.assign(5, Priority.NORMAL) for _ in range(4)]
    assert [placement and (placement.lane, placement.branch) for placement in more] == [
        (OVERFLOW, Branch.OVERFLOW)
    ] * 3 + [None]
