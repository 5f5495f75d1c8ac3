"""The order of a request's results. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kev.bus.messages import Manifest, SlotPlan
from kev.domain.outcome import Outcome
from kev.domain.question import Priority, ResultMode
from kev.domain.result import Results, SlotResult

BANDS = {Priority.EXPRESS.value: 0, Priority.NORMAL.value: 1, Priority.BACKGROUND.value: 2}


def results_of(manifest: Manifest, outcomes: Mapping[int, Outcome]) -> Results:
    """A request's results in its mode; slots without an outcome are ``pending``.

    ``slot_map``: submission order. ``seq_append``: completion order, open
    slots last. ``priority``: express before normal before background,
    submission order within a band.
    """
    plans = sorted(manifest.slots, key=lambda plan: _key(manifest.mode, plan, outcomes.get(plan.slot)))
    results = tuple(_result(manifest, plan, outcomes.get(plan.slot)) for plan in plans)
    return Results(manifest.request_id, results, complete=all(plan.slot in outcomes for plan in plans))


def _key(mode: ResultMode, plan: SlotPlan, outcome: Outcome | None) -> tuple[float, int]:
    if mode is ResultMode.SEQ_APPEND:
        # A slot refused at the door carries no end stamp: it ended before all others.
        return (outcome.audit.finished_ms if outcome else float("inf"), plan.slot)
    if mode is ResultMode.PRIORITY:
        return (BANDS.get(plan.priority, BANDS[Priority.NORMAL.value]), plan.slot)
    return (0, plan.slot)


def _result(manifest: Manifest, plan: SlotPlan, outcome: Outcome | None) -> SlotResult:
    return SlotResult.of(outcome) if outcome else SlotResult(manifest.request_id, plan.slot, plan.id)
