"""What the tests of the router share: settings, workers' beats, batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from kev.bus.messages import QueuedQuestion, WorkerLease
from kev.bus.port import Bus
from kev.config.load import load_settings
from kev.config.settings import Settings
from kev.domain.outcome import FinishReason, Outcome, Status, text_digest
from kev.domain.question import Batch, Question
from kev.tokens.tokenizer import Tokenizer


def settings_with(**flags: Any) -> Settings:
    """Settings for tests; ``router__overflow_policy="wait"`` sets ``router.overflow_policy``."""
    return load_settings(None, flags={name.replace("__", "."): value for name, value in flags.items()}, environment={})


def lease(tokenizer: Tokenizer, name: str = "w1", channels: int = 2, **changes: Any) -> WorkerLease:
    """A worker's beat."""
    facts: dict[str, Any] = {
        "worker_id": name,
        "channels": channels,
        "free": channels,
        "state": "ready",
        "model_digest": "model",
        "tokenizer_digest": tokenizer.digest,
        "max_context": 4096,
    }
    return WorkerLease(**{**facts, **changes})


def batch_of(*texts: str, request_id: str = "r1", **changes: Any) -> Batch:
    """A batch of these texts; ``changes`` go into each question."""
    questions = tuple(msgspec.structs.replace(Question(text=text), **changes) for text in texts)
    return Batch(questions=questions, request_id=request_id)


def many(count: int, request_id: str = "r1", **changes: Any) -> Batch:
    """A batch of different questions."""
    return batch_of(*(f"What is {number} + {number}?" for number in range(count)), request_id=request_id, **changes)


async def taken_from(bus: Bus, source: str = "w1") -> list[QueuedQuestion]:
    """Takes all that waits there."""
    found = []
    while taken := await bus.take(source, 1):
        found.append(taken[0].question)
    return found


async def answer_one(bus: Bus, source: str = "w1", text: str = "4") -> QueuedQuestion | None:
    """A worker's whole work on one question: take, settle, acknowledge."""
    some = await bus.take(source, 1)
    if not some:
        return None
    taken = some[0]
    question = taken.question
    await bus.settle(
        Outcome(
            question.request_id,
            question.rid,
            question.slot,
            Status.ANSWERED,
            FinishReason.STOP,
            question.id,
            text,
            len(text),
            text_digest(text),
            taken.attempt,
        )
    )
    await taken.ack()
    return question


async def until(true: Callable[[], Any]) -> None:
    """Lets the loop run until something is so. Tests have a deadline around it."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
