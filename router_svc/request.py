"""One submit on its way: what is known of its request, and what is still to be done for it. Plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kev.bus.messages import Manifest
from kev.bus.port import Claim
from kev.domain.result import Submitted
from router_svc.admission import Refusal
from router_svc.placing import Filling

Stands = Callable[[Submitted], None]
"""Called once when a request can be followed."""


@dataclass(slots=True)
class Request:
    """One submit on its way.

    Attributes:
        claim: Holds the request while this submit works on it; None if nothing of it can run any more.
        refusals: Slots to be settled as refused.
        refused: Slots whose outcome is a refusal.
        stands: Told once that the request can be followed.
    """

    manifest: Manifest
    claim: Claim | None
    filling: Filling
    refusals: dict[int, Refusal]
    refused: set[int]
    stands: Stands | None

    def submitted(self) -> Submitted:
        """The reply."""
        slots = tuple(sorted(self.refused | set(self.refusals)))
        return Submitted(
            self.manifest.request_id, len(self.manifest.slots), slots, duplicate=not (self.claim and self.claim.first)
        )

    def tell(self) -> None:
        """Says, once, that the request stands."""
        stands, self.stands = self.stands, None
        if stands is not None:
            stands(self.submitted())
