"""The order of results in each mode."""

from __future__ import annotations

import pytest

from aggregator_svc.order import results_of
from kev.bus.messages import Manifest, SlotPlan
from kev.domain.outcome import Audit, FinishReason, Outcome, Status
from kev.domain.question import Isolation, ResultMode

PRIORITIES = ("normal", "background", "express", "normal", "express")


def _manifest(mode: ResultMode) -> Manifest:
    plans = tuple(SlotPlan(slot, 1000, f"q{slot}", priority) for slot, priority in enumerate(PRIORITIES))
    return Manifest("rid", "req", "", "d", 0, 10, Isolation.STRICT, mode, plans)


def _ended(slot: int, finished_ms: int) -> Outcome:
    audit = Audit(finished_ms=finished_ms)
    return Outcome("req", "rid", slot, Status.ANSWERED, FinishReason.STOP, text=f"t{slot}", audit=audit)


@pytest.mark.parametrize(
    ("mode", "order"),
    [
        (ResultMode.SLOT_MAP, [0, 1, 2, 3, 4]),
        (ResultMode.SEQ_APPEND, [4, 3, 0, 1, 2]),
        (ResultMode.PRIORITY, [2, 4, 0, 3, 1]),
    ],
)
def test_each_mode_has_its_order_and_open_slots_are_pending(mode: ResultMode, order: list[int]) -> None:
    ends = {0: _ended(0, 30), 3: _ended(3, 20), 4: _ended(4, 0)}
    results = results_of(_manifest(mode), ends)
    assert [result.slot for result in results.results] == order
    assert not results.complete
    by_slot = {result.slot: result for result in results.results}
    assert {slot: by_slot[slot].status for slot in (1, 2)} == {1: "pending", 2: "pending"}
    assert by_slot[1].id == "q1"
    assert by_slot[3].text == "t3"


def test_complete_when_every_slot_has_ended() -> None:
    assert results_of(_manifest(ResultMode.SLOT_MAP), {slot: _ended(slot, 1) for slot in range(5)}).complete
