"""Priorities help and nobody starves; whatever is long, an answer waits for at most one chunk."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_schedule import Floor

from inference_svc.channels import Kind, Part
from inference_svc.schedule import HANDICAPS

EXPRESS, NORMAL, BACKGROUND = 0, 1, 2


@pytest.mark.parametrize("long", ["a prompt", "a stored prefix", "a context pool"])
def test_what_is_long_never_stalls_the_others_decoding(long: str) -> None:
    floor = Floor(rows=8, channels=6, pages=128, context=600)
    for channel in range(3):
        floor.join(channel, prompt=1, tokens=120)
    floor.turn()
    shared = {"a prompt": {}, "a stored prefix": {"prefix": 399}, "a context pool": {"parts": (Part(Kind.POOL, 399),)}}
    floor.join(3, prompt=400, tokens=2, **shared[long])
    turns = [floor.turn() for _ in range(79)]
    assert all(turn[channel] == 1 for turn in turns for channel in range(3))
    assert all(sum(turn.values()) <= 8 for turn in turns)
    assert 3 not in floor.turn() or floor.runs[3].generated > 0
    assert sum(rows for turn in turns for channel, rows in turn.items() if channel not in (0, 1, 2)) >= 395


def test_more_long_prompts_than_seats_still_let_answers_go_on() -> None:
    """An answer that must share its seat comes round as often as there are others for it."""
    floor = Floor(rows=8, channels=2, pages=256, context=600)
    floor.join(0, prompt=1, tokens=60)
    for channel in range(1, 4):
        floor.join(channel, prompt=300, tokens=1)
    turns = [floor.turn() for _ in range(40)]
    served = [number for number, turn in enumerate(turns) if 0 in turn]
    assert max(b - a for a, b in pairwise(served)) <= 4


def test_express_goes_first_and_background_is_not_forgotten() -> None:
    floor = Floor(channels=1)
    floor.join(0, prompt=1, tokens=40, priority=EXPRESS)
    floor.join(1, prompt=1, tokens=40, priority=NORMAL)
    floor.join(2, prompt=1, tokens=40, priority=BACKGROUND)
    first = [next(iter(floor.turn())) for _ in range(30)]
    assert first.count(0) > first.count(1) > first.count(2) > 0
    assert first.index(1) <= HANDICAPS[NORMAL] + 1
    assert first.index(2) <= HANDICAPS[BACKGROUND] + 2


def test_with_seats_enough_a_priority_costs_nobody_anything() -> None:
    floor = Floor(channels=3)
    for channel, priority in enumerate((EXPRESS, NORMAL, BACKGROUND)):
        floor.join(channel, prompt=1, tokens=6, priority=priority)
    assert all(set(turn) == {0, 1, 2} for turn in floor.all_turns())


def test_express_starts_before_what_came_a_little_earlier() -> None:
    floor = Floor(pages=2, context=64)
    floor.join(0, prompt=16, tokens=3)
    floor.turn()
    floor.join(1, prompt=20, tokens=2, priority=BACKGROUND)
    floor.join(2, prompt=20, tokens=2, priority=EXPRESS)
    order = [next(iter(turn)) for turn in floor.all_turns()]
    assert order.index(2) < order.index(1)


def test_background_starts_although_express_keeps_coming() -> None:
    floor = Floor(pages=2, context=64)
    floor.join(0, prompt=20, tokens=2, priority=BACKGROUND)
    came = 0
    while not floor.runs[0].admitted:
        floor.join(1 + came, prompt=20, tokens=2, priority=EXPRESS)
        came += 1
        floor.turn()
        assert came <= 3 * (HANDICAPS[BACKGROUND] + 2), "each takes three forwards"


def test_a_hurried_question_does_not_break_its_requests_bound() -> None:
    floor = Floor()
    floor.join(0, prompt=1, tokens=9, group="same", max_parallel=1, priority=NORMAL)
    floor.turn()
    floor.join(1, prompt=1, tokens=9, group="same", max_parallel=1, priority=EXPRESS)
    assert all(len(turn) == 1 for turn in floor.all_turns())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(1, 12), st.integers(0, 2)),
        min_size=2,
        max_size=8,
    ),
    st.sampled_from([(1, 8), (2, 8), (4, 3)]),
)
def test_nobody_waits_longer_than_all_others_together_may_take(
    runs: list[tuple[int, int, int]], size: tuple[int, int]
) -> None:
    """Between two of a run's turns no other is served more often than the handicaps allow."""
    floor = Floor(channels=size[0], rows=size[1], pages=200, context=200)
    for channel, (prompt, tokens, priority) in enumerate(runs):
        floor.join(channel, prompt=prompt, tokens=tokens, priority=priority)
    turns = floor.all_turns()
    for channel in range(len(runs)):
        served = [-1, *(number for number, turn in enumerate(turns) if channel in turn)]
        assert len(served) > 1
        bound = len(runs) * (HANDICAPS[-1] + 1) + HANDICAPS[-1]
        assert max(b - a for a, b in pairwise(served)) <= bound
