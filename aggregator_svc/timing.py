"""How long a request's slots take, as one replica sees it. Pure: time is passed in."""

from __future__ import annotations

from collections.abc import Iterable

from kev.domain.outcome import Outcome


class Timing:
    """First texts and the pauses between texts, slot by slot.

    Args:
        began: When the replica began to follow the request, monotonic seconds.
        fresh: Whether the request was new then; the first texts of an older one tell nothing.
    """

    def __init__(self, began: float, fresh: bool) -> None:
        self._began = began
        self._fresh = fresh
        self._heard: dict[int, float] = {}

    def heard(self, slots: Iterable[int], now: float) -> tuple[list[float], list[float]]:
        """Slots got new text.

        Returns:
            Seconds to a slot's first text, and seconds since its last one; each slot is in one of the two.
        """
        first, next_ = [], []
        for slot in slots:
            before = self._heard.get(slot)
            self._heard[slot] = now
            if before is not None:
                next_.append(now - before)
            elif self._fresh:
                first.append(now - self._began)
        return first, next_


def end_to_end_s(outcome: Outcome) -> float | None:
    """Acceptance to end, as the worker measured it; None for a slot that no channel ran."""
    audit = outcome.audit
    return (audit.queued_ms + audit.elapsed_ms) / 1000 if audit.channel else None
