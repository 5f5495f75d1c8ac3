"""What an idle core is told of questions on their way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inference_svc.arrivals import Arrival, Arrivals


def test_it_is_told_when_the_first_comes_and_when_the_last_is_there() -> None:
    told: list[bool] = []
    arrivals = Arrivals(told.append)
    with arrivals.behind() as behind:
        behind.set(True)
        first, second = arrivals.begin(), arrivals.begin()
        first.over()
        arrivals.begin(soon=False)
    assert told == [True]
    second.over()
    assert told == [True, False]


def test_a_sweep_that_fails_is_over() -> None:
    told: list[bool] = []
    try:
        with Arrivals(told.append).behind() as behind:
            behind.set(True)
            raise OSError
    except OSError:
        pass
    assert told == [True, False]


@given(st.lists(st.integers(0, 5)))
def test_any_order_ends_with_nobody_expected(order: list[int]) -> None:
    told: list[bool] = []
    arrivals = Arrivals(told.append)
    known: dict[int, Arrival] = {}
    for number in order:
        if number in known:
            known[number].over()
        else:
            known[number] = arrivals.begin()
    for arrival in known.values():
        arrival.over()
    assert told == [True, False] * (len(told) // 2)
