"""The line is fair and bounded; the delay follows depth and drain rate."""

from __future__ import annotations

import pytest

from kev.domain.errors import Overloaded
from router_svc.overflow import LEAST_MS, MOST_MS, UNKNOWN_RATE_MS, DrainRate, Line


def _rate(per_second: float) -> DrainRate:
    rate = DrainRate()
    rate.per_second = per_second
    return rate


def test_first_in_first_out_and_the_next_is_woken_when_one_leaves() -> None:
    line, woken = Line(3), []
    tickets = [line.enter(lambda name=name: woken.append(name), 1, _rate(1)) for name in "abc"]
    assert [line.first(ticket) for ticket in tickets] == [True, False, False]
    line.leave(tickets[1])  # from the middle: the first is woken, and nobody is lost
    line.leave(tickets[0])
    assert woken == ["a", "c"]
    assert line.first(tickets[2])
    line.leave(tickets[2])
    assert len(line) == 0
    line.wake()


def test_the_bound_refuses_with_a_delay_for_all_that_wait() -> None:
    line = Line(2)
    for _ in range(2):
        line.enter(lambda: None, 50, _rate(10))
    with pytest.raises(Overloaded) as caught:
        line.enter(lambda: None, 1, _rate(10))
    assert caught.value.retry_after_ms == 10_100
    assert len(line) == 2


def test_the_rate_counts_what_left_not_what_came() -> None:
    rate = DrainRate()
    rate.update(0.0, 100, 0)
    for second in range(1, 40):
        rate.update(float(second), 100, 20)  # as many left as arrived
    assert rate.per_second == pytest.approx(20, rel=0.01)
    assert rate.retry_after_ms(10) == pytest.approx(500, rel=0.02)


def test_polls_of_empty_queues_say_nothing_about_the_rate() -> None:
    rate = DrainRate()
    rate.update(0.0, 0, 0)
    rate.update(1.0, 0, 20)
    known = rate.per_second
    for second in range(2, 30):
        rate.update(float(second), 0, 0)
    assert rate.per_second == known > 0
    rate.update(30.0, 5, 5)  # there are some, and none left
    assert rate.per_second < known


def test_the_delay_has_limits() -> None:
    assert _rate(0).retry_after_ms(5) == UNKNOWN_RATE_MS
    assert _rate(1).retry_after_ms(10_000) == MOST_MS
    assert _rate(10_000).retry_after_ms(1) == LEAST_MS
