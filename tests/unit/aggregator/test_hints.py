"""When a slot that is said to have ended is looked at again."""

from __future__ import annotations

from aggregator_svc.hints import FIRST_PAUSE_S, Hints


def test_slots_are_looked_at_once_and_in_the_order_in_which_they_ended() -> None:
    hints = Hints()
    for slot in (3, 1, 3, 2):
        hints.heard(slot)
    assert hints.take({1, 2, 3, 4}) == [3, 1, 2]
    assert hints.take({1, 2, 3, 4}) == []


def test_settled_slots_are_not_looked_at() -> None:
    hints = Hints()
    hints.heard(1)
    hints.heard(2)
    assert hints.take({2}) == [2]


def test_a_slot_without_a_record_is_looked_at_again_after_pauses_that_double() -> None:
    hints = Hints()
    hints.heard(5)
    pauses = []
    while taken := hints.take({5}):
        hints.unread(taken, 1.0)
        pauses.append(hints.pause_s)
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] is None, "a refused write is looked for no longer"
    assert sum(pause for pause in pauses if pause) < 1.1


def test_when_all_were_read_nothing_is_waited_for_and_pauses_begin_anew() -> None:
    hints = Hints()
    hints.heard(5)
    hints.unread(hints.take({5}), 1.0)
    hints.unread(hints.take({5}), 1.0)
    hints.take({5})
    hints.unread([], 1.0)
    assert hints.pause_s is None
    hints.heard(6)
    hints.unread(hints.take({6}), 1.0)
    assert hints.pause_s == FIRST_PAUSE_S


def test_a_slot_heard_of_meanwhile_is_kept_beside_those_without_a_record() -> None:
    hints = Hints()
    hints.heard(1)
    taken = hints.take({1, 2})
    hints.heard(2)
    hints.unread(taken, 1.0)
    assert hints.take({1, 2}) == [1, 2]
