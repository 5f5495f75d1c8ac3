"""Where a worker looks for questions: everybody gets a turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inference_svc.take_order import orphans, take_order, who_take
from kev.bus.messages import EXPRESS, OVERFLOW, Lane, WorkerLease


def test_the_usual_order() -> None:
    assert take_order("w1", ["old"], 1) == ("express", "w1", "overflow", "old", "background")


def test_every_4th_take_begins_at_overflow_and_every_16th_at_background() -> None:
    firsts = [take_order("w1", [], turn)[0] for turn in range(1, 33)]
    assert [turn for turn, first in enumerate(firsts, 1) if first == "overflow"] == [4, 8, 12, 20, 24, 28]
    assert [turn for turn, first in enumerate(firsts, 1) if first == "background"] == [16, 32]
    assert set(firsts) == {"express", "overflow", "background"}


def test_a_take_that_begins_elsewhere_goes_round() -> None:
    assert take_order("w1", ["old"], 4) == ("overflow", "old", "background", "express", "w1")
    assert take_order("w1", ["old"], 16) == ("background", "express", "w1", "overflow", "old")


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True), st.integers(1, 1000))
def test_every_source_is_tried_once(gone: list[str], turn: int) -> None:
    order = take_order("w1", gone, turn)
    assert sorted(order) == sorted(["express", "w1", "overflow", "background", *gone])


def test_orphans_take_turns() -> None:
    seen = {take_order("w1", ["a", "b", "c"], turn)[3] for turn in range(1, 4)}
    assert seen == {"a", "b", "c"}


def test_orphans_are_queues_of_workers_that_are_gone() -> None:
    depths = {Lane("w1", 0): 1, Lane("w2", 0): 2, Lane("w3", 1): 4, Lane("w3", 2): 1, Lane("w4", 0): 0}
    depths |= {EXPRESS: 3, OVERFLOW: 5}
    assert orphans(depths, ["w2"], "w1") == ("w3",)
    assert orphans(depths, [], "w1") == ("w2", "w3")


def test_a_worker_that_drains_takes_nothing_more() -> None:
    fleet = {
        name: WorkerLease(name, 4, 4, state, "m", "t", 512) for name, state in (("w1", "ready"), ("w2", "draining"))
    }
    assert who_take(fleet) == {"w1"}


def test_long_queues_have_an_order_of_their_own() -> None:
    assert take_order("w1", ["old.long"], 1, long=True) == (
        "express.long",
        "w1.long",
        "overflow.long",
        "old.long",
        "background.long",
    )
    assert take_order("w1", [], 4, long=True)[0] == "overflow.long"


def test_a_worker_without_long_channels_looks_after_long_queues_that_nobody_may_serve() -> None:
    depths = {Lane("w1", 3, long=True): 1, Lane("w2", 3, long=True): 1, Lane("w3", 3, long=True): 1, Lane("w3", 0): 1}
    depths |= {Lane("express", long=True): 1, EXPRESS: 1}
    assert orphans(depths, ["w2"], "w1") == ("express.long", "w1.long", "w3", "w3.long")
    assert orphans(depths, ["w2"], "w1", lanes=True) == ("w3", "w3.long")
