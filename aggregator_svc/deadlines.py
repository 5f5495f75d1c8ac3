"""When a slot without a record is timed out. Pure: the time is passed in.

The worker ends a slot at its deadline with the partial text. A reader steps
in only after deadline + grace: then a slot without a record *is* timed out.
"""

from __future__ import annotations

from collections.abc import Iterable

from kev.bus.messages import Manifest, SlotPlan, ended_unrun
from kev.domain.outcome import FinishReason, Outcome, Status


def overdue(manifest: Manifest, open_slots: Iterable[int], now_ms: int) -> list[Outcome]:
    """Placeholders of the open slots whose deadline + grace has passed."""
    waiting = set(open_slots)
    late = (plan for plan in manifest.slots if plan.slot in waiting and now_ms > _due_ms(manifest, plan))
    return [_placeholder(manifest, plan, now_ms) for plan in late]


def next_due_ms(manifest: Manifest, open_slots: Iterable[int]) -> int | None:
    """When the next open slot becomes overdue, Unix milliseconds; None if none is open."""
    waiting = set(open_slots)
    return min((_due_ms(manifest, plan) + 1 for plan in manifest.slots if plan.slot in waiting), default=None)


def _due_ms(manifest: Manifest, plan: SlotPlan) -> int:
    return plan.deadline_ms + manifest.grace_ms


def _placeholder(manifest: Manifest, plan: SlotPlan, now_ms: int) -> Outcome:
    waited = plan.deadline_ms - manifest.created_ms
    return ended_unrun(
        manifest,
        plan,
        Status.TIMED_OUT,
        FinishReason.TIMEOUT,
        reason="no_record",
        detail=f"no worker finished it within its {waited} ms, nor in the {manifest.grace_ms} ms of grace",
        finished_ms=now_ms,
    )
