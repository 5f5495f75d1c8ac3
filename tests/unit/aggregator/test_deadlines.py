"""A slot without a record is timed out after deadline + grace, not before."""

from __future__ import annotations

from aggregator_svc.deadlines import next_due_ms, overdue
from kev.bus.messages import Manifest, SlotPlan
from kev.domain.outcome import Status, text_digest
from kev.domain.question import Isolation, ResultMode

PLANS = (SlotPlan(0, 5000, "a"), SlotPlan(1, 3000, "b"), SlotPlan(2, 9000, "c"))
MANIFEST = Manifest("rid", "req", "", "d", 1000, 200, Isolation.STRICT, ResultMode.SLOT_MAP, PLANS)


def test_nothing_is_overdue_up_to_the_end_of_the_grace() -> None:
    assert overdue(MANIFEST, (0, 1, 2), 3200) == []
    assert [placeholder.slot for placeholder in overdue(MANIFEST, (0, 1, 2), 3201)] == [1]


def test_settled_slots_are_left_alone() -> None:
    assert [placeholder.slot for placeholder in overdue(MANIFEST, (2,), 99_999)] == [2]


def test_the_placeholder_says_what_happened() -> None:
    (placeholder,) = overdue(MANIFEST, (1,), 4000)
    assert placeholder.status is Status.TIMED_OUT
    assert (placeholder.rid, placeholder.request_id, placeholder.id) == ("rid", "req", "b")
    assert (placeholder.text, placeholder.attempt, placeholder.text_sha256) == ("", 0, text_digest(""))
    assert "2000 ms" in placeholder.detail
    assert "200 ms" in placeholder.detail


def test_the_next_due_time_is_when_overdue_begins() -> None:
    due = next_due_ms(MANIFEST, (0, 1))
    assert due == 3201
    assert overdue(MANIFEST, (0, 1), due)
    assert not overdue(MANIFEST, (0, 1), due - 1)
    assert next_due_ms(MANIFEST, ()) is None
