"""Asks the questions of a file: in batches, or one by one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from enum import StrEnum

import msgspec

from kev.app.backend import Backend
from kev.domain.errors import BusUnavailable, Overloaded
from kev.domain.ids import new_request_id
from kev.domain.question import Batch, Question
from kev.domain.result import PENDING, SlotResult

BATCH = 64
"""Questions of one batch: small enough that a deadline, which runs from acceptance, is not spent in the queue."""
IN_FLIGHT = 2
"""Batches under way at a time: while one runs out, the next keeps the channels busy."""
TRIES_BEFORE, TRIES = 3, 20
"""How often in a row a batch is tried that the cluster did not take, or whose stream was lost: before anything was
heard of a cluster, and afterwards (about half a minute)."""
REFUSALS = 2
"""After so many refusals for want of room a batch goes on in halves."""
LONGEST_PAUSE_S = 2.0
Ended = Callable[[SlotResult], None]
Refused = Callable[[Overloaded], None]


class RunMode(StrEnum):
    """``single`` is the serial mode: one question a forward."""

    BATCHED = "batched"
    SINGLE = "single"


async def run_questions(
    backend: Backend,
    questions: Sequence[Question],
    mode: RunMode,
    ended: Ended,
    whole: Batch | None = None,
    refused: Refused = lambda error: None,
) -> AsyncGenerator[SlotResult, None]:
    """Results in the order of the questions, with slots numbered over all of them.

    Args:
        ended: Called when a slot ends, in the order of their ends, for a progress bar.
        whole: A batch whose options (isolation, strategy …) every batch of them has.
        refused: Called whenever there was no room; the run goes on by itself.

    Raises:
        KevError: the backend cannot go on.
    """
    size, most = (1, 1) if mode is RunMode.SINGLE else (BATCH, IN_FLIGHT)
    whole = whole or Batch(())
    if mode is RunMode.SINGLE:
        whole = msgspec.structs.replace(whole, max_parallel=1)
    running: deque[asyncio.Task[list[SlotResult]]] = deque()
    try:
        for first in range(0, len(questions), size):
            if len(running) == most:
                for result in await running.popleft():
                    yield result
            batch = msgspec.structs.replace(whole, questions=tuple(questions[first : first + size]))
            running.append(asyncio.create_task(_run_batch(backend, batch, first, ended, refused)))
        while running:
            for result in await running.popleft():
                yield result
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _run_batch(backend: Backend, batch: Batch, first: int, ended: Ended, refused: Refused) -> list[SlotResult]:
    """One batch to its end; waits while there is no room for it, and while a service is away.

    One that found no room twice goes on in halves, one after the other, and what is left of it in parts of that size: a
    router that takes batches whole never has room for one that is larger than all its queues.
    """
    most = len(batch.questions)
    results: list[SlotResult] = []
    while left := batch.questions[len(results) :]:
        part = msgspec.structs.replace(batch, questions=left[:most], request_id=new_request_id())
        found = await _run_part(backend, part, first + len(results), ended, refused)
        if found is None:
            most = len(part.questions) // 2
        else:
            results += found
    return results


async def _run_part(
    backend: Backend, batch: Batch, first: int, ended: Ended, refused: Refused
) -> list[SlotResult] | None:
    """Questions that are asked together, to their end; None if they found no room, and fewer of them may find some.

    The batch keeps its id, so that it runs once however often it is asked.
    """
    results: dict[int, SlotResult] = {}
    failures = refusals = 0
    while len(results) < len(batch.questions):
        before = len(results)
        try:
            await _ask(backend, batch, first, ended, results)
        except Overloaded as error:
            refusals += 1
            refused(error)
            kept = failures or results  # or perhaps: then it is asked for under its id, and no other way
            if refusals >= REFUSALS and not kept and len(batch.questions) > 1:
                return None
            await asyncio.sleep(error.retry_after_ms / 1000)
        except BusUnavailable:
            failures = 1 if len(results) > before else failures + 1
            if failures >= (TRIES if first or results else TRIES_BEFORE):
                raise
            await asyncio.sleep(min(LONGEST_PAUSE_S, 0.25 * 2**failures))
    return [results[slot] for slot in sorted(results)]


async def _ask(backend: Backend, batch: Batch, first: int, ended: Ended, results: dict[int, SlotResult]) -> None:
    """Adds to ``results`` what it does not hold yet."""
    async with aclosing(backend.ask(batch)) as frames:
        async for frame in frames:
            if frame.result is not None and frame.result.status != PENDING and frame.slot not in results:
                results[frame.slot] = result = msgspec.structs.replace(frame.result, slot=first + frame.slot)
                ended(result)
    if len(results) < len(batch.questions):
        raise BusUnavailable(f"the stream ended with {len(batch.questions) - len(results)} questions open")
