"""A worker without a model: it takes questions as a real one does, and each takes a fixed time."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self

import numpy as np

from kev.bus.messages import WorkerLease
from kev.bus.port import Bus, Taken
from kev.domain.outcome import FinishReason, Outcome, Status, text_digest

NAME, TEXT = "standin", "42"
_BEAT_S, _SWEEP_S = 1.0, 0.05


class StandIn:
    """An async context manager that serves while it is open.

    Args:
        channels: Questions at a time.
        service_s: Time of each.

    Attributes:
        times: Seconds from acceptance to the stored outcome, one per question.
    """

    def __init__(self, bus: Bus, tokenizer_digest: str, max_context: int, channels: int, service_s: float) -> None:
        self.times: list[float] = []
        self._bus, self._channels, self._service_s = bus, channels, service_s
        self._digest, self._max_context = tokenizer_digest, max_context
        self._bell = asyncio.Event()
        self._busy = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._announce()
        self._subscription = await self._bus.on_bell(NAME, lambda _: self._bell.set())
        self._tasks = [asyncio.create_task(self._serve()) for _ in range(self._channels)]
        self._tasks.append(asyncio.create_task(self._beat()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._subscription.close()
        await self._bus.withdraw(NAME)

    async def idle(self) -> None:
        """Waits until the queues are empty and nothing runs."""
        while self._busy or any(await self._bus.depths()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    def p99(self) -> float:
        """Of ``times``, seconds; NaN without any."""
        return round(float(np.percentile(self.times, 99)), 3) if self.times else float("nan")

    async def _announce(self) -> None:
        await self._bus.announce(
            WorkerLease(NAME, self._channels, self._channels, "ready", "none", self._digest, self._max_context)
        )

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_S)
            await self._announce()

    async def _serve(self) -> None:
        while True:
            if taken := await self._bus.take(NAME, 1):
                await self._answer(taken[0])
                continue
            self._bell.clear()
            try:
                async with asyncio.timeout(_SWEEP_S):
                    await self._bell.wait()
            except TimeoutError:
                pass

    async def _answer(self, taken: Taken) -> None:
        question = taken.question
        self._busy += 1
        try:
            await asyncio.sleep(self._service_s)
            await self._bus.settle(
                Outcome(
                    question.request_id,
                    question.rid,
                    question.slot,
                    Status.ANSWERED,
                    FinishReason.STOP,
                    text=TEXT,
                    text_length=len(TEXT),
                    text_sha256=text_digest(TEXT),
                )
            )
            await taken.ack()
            self.times.append(time.time() - question.accepted_ms / 1000)
        finally:
            self._busy -= 1
