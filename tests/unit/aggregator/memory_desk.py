"""What the tests of the aggregator share: one request on a memory bus, and a clock that stands still until told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from aggregator_svc.aggregator import Aggregator
from kev.bus.memory import MemoryBus
from kev.bus.messages import Delta, Manifest, Piece, SlotPlan
from kev.config.settings import Settings
from kev.domain.ids import rid_of
from kev.domain.outcome import Audit, FinishReason, Outcome, Status, text_digest
from kev.domain.question import Isolation, ResultMode
from kev.domain.result import Frame

RID = rid_of("", "req")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


class Desk:
    """A memory bus with one request on it, and the aggregator."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.bus = MemoryBus()
        self.aggregator = Aggregator(self.bus, Settings(), clock=self.clock)

    async def open(self, slots: int = 2, mode: ResultMode = ResultMode.SLOT_MAP, timeout_ms: int = 60_000) -> None:
        now = self.clock.now
        plans = tuple(SlotPlan(slot, now + timeout_ms, f"q{slot}") for slot in range(slots))
        self.claim = await self.bus.open_request(
            Manifest(RID, "req", "", "d", now, 2000, Isolation.STRICT, mode, plans),
        )

    async def say(self, slot: int, offset: int, text: str, attempt: int = 1) -> None:
        await self.bus.publish_delta(Delta(RID, "w", (Piece(slot, attempt, f"w/{slot}", offset, text),)))

    async def end(self, slot: int, text: str, attempt: int = 1, finished_ms: int = 0) -> None:
        await self.bus.settle(
            Outcome(
                "req",
                RID,
                slot,
                Status.ANSWERED,
                FinishReason.STOP,
                f"q{slot}",
                text,
                len(text),
                text_digest(text),
                attempt,
                audit=Audit(finished_ms=finished_ms),
            )
        )

    async def reading(self) -> tuple[AsyncGenerator[Frame, None], asyncio.Future[Frame]]:
        """A stream that is being followed, and its first frame, to be awaited."""
        stream = self.aggregator.stream("", "req")
        first = asyncio.ensure_future(anext(stream))
        await until(lambda: self.bus._feeds)
        await asyncio.sleep(0)
        return stream, first

    @property
    def idle(self) -> bool:
        return not (self.aggregator._followers or self.aggregator._tasks or self.bus._feeds)


async def until(condition: object) -> None:
    assert callable(condition)
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come about")
