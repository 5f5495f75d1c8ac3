"""A send counts from the choice until a poll that must have seen it."""

from __future__ import annotations

from kev.bus.messages import Lane
from router_svc.loads import Loads

A, B = Lane("w", 0), Lane("w", 1)


def _loads() -> Loads:
    loads = Loads()
    loads.count([A, B])
    return loads


def test_a_choice_counts_at_once_and_can_be_undone() -> None:
    loads = _loads()
    loads.place(A)
    loads.place(A)
    assert (loads.of(A), loads.total) == (2, 2)
    loads.undo([A, A])
    assert (loads.of(A), loads.total) == (0, 0)


def test_a_send_that_arrived_before_the_poll_is_counted_by_the_poll_alone() -> None:
    loads = _loads()
    loads.place(A)
    loads.confirm([A])
    loads.mark()
    loads.observe({A: 1})
    assert (loads.of(A), loads.arrived) == (1, 1)
    loads.mark()
    loads.observe({})
    assert (loads.of(A), loads.arrived) == (0, 0)


def test_a_send_during_the_poll_stays_on_top_of_it() -> None:
    loads = _loads()
    loads.mark()
    loads.place(A)
    loads.confirm([A])
    loads.observe({})
    assert loads.of(A) == 1


def test_a_choice_that_is_still_on_its_way_survives_polls() -> None:
    loads = _loads()
    loads.place(B)
    for _ in range(3):
        loads.mark()
        loads.observe({})
    assert loads.of(B) == 1
    loads.confirm([B])
    loads.mark()
    loads.observe({})
    assert loads.of(B) == 0


def test_a_failed_poll_forgets_nothing() -> None:
    loads = _loads()
    loads.place(A)
    loads.confirm([A])
    loads.mark()
    loads.missed()
    assert loads.of(A) == 1
    loads.mark()
    loads.observe({A: 1})
    assert loads.of(A) == 1


def test_lanes_that_left_do_not_count() -> None:
    loads = _loads()
    loads.observe({A: 3, B: 4, Lane("gone", 0): 9})
    assert loads.total == 7
    loads.count([A])
    assert loads.total == 3
