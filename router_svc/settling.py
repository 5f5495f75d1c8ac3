"""Outcomes that the router writes: refused and cancelled slots."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence

from kev.bus.messages import CancelHint, Manifest
from kev.bus.port import Bus
from kev.domain.errors import InvalidArgument, NotFound
from kev.domain.outcome import Outcome
from router_svc import records
from router_svc.tasks import to_the_end

_AT_ONCE = 32


class Settling:
    """Writes outcomes. The first writer of a slot wins, and that may be a worker.

    Args:
        clock: Unix milliseconds.
    """

    def __init__(self, bus: Bus, clock: Callable[[], int]) -> None:
        self._bus = bus
        self._clock = clock

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The stored outcomes, whoever wrote them; some at a time."""
        stored: list[Outcome] = []
        for start in range(0, len(outcomes), _AT_ONCE):
            part = outcomes[start : start + _AT_ONCE]
            stored += await asyncio.gather(*(self._bus.settle(outcome) for outcome in part))
        return stored

    async def cancel(self, rid: str, request_id: str, slots: Sequence[int], with_text: bool) -> tuple[int, ...]:
        """See ``Router.cancel``."""
        record = await self._bus.request(rid)
        if record is None:
            raise NotFound(f"request {request_id}: there is none, or it has expired")
        count = len(record.manifest.slots)
        if wrong := [slot for slot in slots if not 0 <= slot < count]:
            raise InvalidArgument("slots", f"must be 0 to {count - 1}, got {wrong[0]}")
        chosen = frozenset(slots)
        wanted = [slot for slot in record.open_slots() if not chosen or slot in chosen]
        return await to_the_end(self._cancel(record.manifest, wanted, with_text)) if wanted else ()

    async def _cancel(self, manifest: Manifest, slots: Sequence[int], with_text: bool) -> tuple[int, ...]:
        """Truth first, then the hint that makes it fast."""
        pieces = await self._bus.catch_up(manifest.rid) if with_text else ()
        sofar = {piece.slot: piece for piece in pieces}
        now_ms, writer = self._clock(), secrets.token_hex(8)
        wanted = [
            records.cancelled(manifest, slot, now_ms=now_ms, sofar=sofar.get(slot), writer=writer) for slot in slots
        ]
        stored = await self.settle(wanted)
        gone = tuple(mine.slot for mine, kept in zip(wanted, stored, strict=True) if mine == kept)
        if gone:
            await self._bus.hint_cancel(CancelHint(manifest.rid, gone))
        return gone
