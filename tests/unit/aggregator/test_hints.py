"""When a slot that is said to have ended is looked at again."""

from __future__ import annotations

from aggregator_svc.hints import FIRST_PAUSE_S, Hints


def test_slots_are_looked_at_once_and_in_the_order_in_which_they_ended() -> None:
    hints = Hints()
    for slot in (3, 1, 3, 2):
        hints.heard(slot)
    assert hints.take({1, 2, 3, 4}, 0.0) == [3, 1, 2]
    assert hints.take({1, 2, 3, 4}, 9.0) == []


def test_settled_slots_are_not_looked_at() -> None:
    hints = Hints()
    hints.heard(1)
    hints.heard(2)
    assert hints.take({2}, 0.0) == [2]


def test_a_slot_without_a_record_is_looked_at_again_after_pauses_that_double() -> None:
    hints = Hints()
    hints.heard(5)
    now, pauses = 100.0, []
    while taken := hints.take({5}, now):
        hints.unread(taken, now, 1.0)
        if hints.due is not None:
            pauses.append(round(hints.due - now, 6))
            assert hints.take({5}, now) == [], "not before its time"
            now = hints.due
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert hints.due is None, "a refused write is looked for no longer"
    assert sum(pauses) < 1.1


def test_when_all_were_read_nothing_is_waited_for_and_pauses_begin_anew() -> None:
    hints = Hints()
    hints.heard(5)
    hints.unread(hints.take({5}, 0.0), 0.0, 1.0)
    hints.take({5}, 1.0)
    hints.unread([], 1.0, 1.0)
    assert hints.due is None
    hints.heard(5)
    hints.unread(hints.take({5}, 2.0), 2.0, 1.0)
    assert hints.due == 2.0 + FIRST_PAUSE_S


def test_a_slot_that_was_read_with_the_whole_request_is_waited_for_no_longer() -> None:
    hints = Hints()
    hints.heard(5)
    hints.unread(hints.take({5}, 0.0), 0.0, 1.0)
    assert hints.take({6}, 0.0) == []
    assert hints.due is None


def test_a_slot_heard_of_meanwhile_is_kept_beside_those_without_a_record() -> None:
    hints = Hints()
    hints.heard(1)
    taken = hints.take({1, 2}, 0.0)
    hints.heard(2)
    hints.unread(taken, 0.0, 1.0)
    assert hints.take({1, 2}, 1.0) == [1, 2]


def test_a_slot_heard_of_once_more_is_looked_at_at_once() -> None:
    hints = Hints()
    hints.heard(1)
    taken = hints.take({1}, 0.0)
    hints.heard(1)
    hints.unread(taken, 0.0, 1.0)
    assert hints.take({1}, 0.0) == [1]


def test_a_slot_does_not_wait_longer_because_others_were_heard_of_too_early() -> None:
    hints = Hints()
    slots = set(range(100))
    for slot in slots:
        hints.heard(slot)
        hints.unread(hints.take(slots, 0.0), 0.0, 1.0)
    assert hints.due == FIRST_PAUSE_S
    assert set(hints.take(slots, FIRST_PAUSE_S)) == slots
