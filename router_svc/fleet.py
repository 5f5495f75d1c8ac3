"""Which workers this router may send to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kev.bus.messages import READY, Lane, WorkerLease
from kev.domain.question import Isolation


@dataclass(frozen=True, slots=True)
class FleetView:
    """The fleet as this router may use it.

    Attributes:
        members: Channels of all usable workers, also those for long questions.
        shared_lanes: Whether all that take from the shared lanes are usable. Anyone may take from those, so with a
            mixed fleet (a new model is being rolled out) every question goes to a channel instead.
        reasons: Worker -> why it is not used, for people.
    """

    members: frozenset[Lane] = frozenset()
    shared_lanes: bool = False
    barred: Mapping[Isolation, frozenset[str]] | None = None
    reasons: Mapping[str, str] | None = None

    def barred_for(self, level: Isolation) -> frozenset[str]:
        """Usable workers that do not serve this isolation level."""
        return (self.barred or {}).get(level, frozenset())


def view_of(fleet: Mapping[str, WorkerLease], tokenizer_digest: str, max_context: int) -> FleetView:
    """The usable part of the fleet.

    Args:
        tokenizer_digest: Of the tokenizer that this router uses; workers with another one are never sent a question.
        max_context: Most positions a question may need here.
    """
    reasons: dict[str, str] = {}
    usable: list[WorkerLease] = []
    mixed = False
    for lease in fleet.values():
        if lease.tokenizer_digest != tokenizer_digest:
            reasons[lease.worker_id] = "another tokenizer"
        elif lease.max_context < max_context:
            reasons[lease.worker_id] = f"max_context {lease.max_context} is below this router's {max_context}"
        elif lease.state != READY:
            reasons[lease.worker_id] = lease.state
            continue
        else:
            usable.append(lease)
            continue
        mixed = True
    members = frozenset(
        Lane(lease.worker_id, channel, long=channel >= lease.channels - lease.long_channels)
        for lease in usable
        for channel in range(lease.channels)
    )
    barred = {
        level: frozenset(lease.worker_id for lease in usable if lease.levels and level.value not in lease.levels)
        for level in Isolation
    }
    return FleetView(members, bool(usable) and not mixed, barred, reasons)
