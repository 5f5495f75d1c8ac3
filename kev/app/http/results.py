"""Results as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import BaseModel, Field

from kev.app.logprobs import logprob_records
from kev.domain.outcome import Status
from kev.domain.result import PENDING, SlotResult


class AuditBody(BaseModel):
    """How an outcome came about."""

    channel: str = Field(description="`worker_id/channel_id`, empty if no channel ran the slot.")
    worker_id: str
    channel_id: int
    bucket: int
    branch: str
    accepted_ms: int
    started_ms: int
    finished_ms: int
    queued_ms: float
    elapsed_ms: float
    prompt_tokens: int
    completion_tokens: int
    attempts: int
    forwards: int
    isolation: str
    backend: str
    variant: str
    model_digest: str
    strategy: str
    home: str = Field(description="Home channel of the bucket when the question was placed.")
    placement: str = Field(description="Why the router placed it where it did.")
    shared_tokens: int = Field(description="Prompt tokens that were not computed for this question alone.")


class LogprobBody(BaseModel):
    """A token and its log probability (natural), before penalties, constraint, temperature and filters."""

    token: int
    text: str = Field(description="A character that is cut off shows as U+FFFD.")
    bytes: list[int] = Field(description="What the token adds to the text, exactly.")
    logprob: float


class ChosenBody(LogprobBody):
    """A token of the answer, with the likeliest ones in its place."""

    top: list[LogprobBody]


class SlotBody(BaseModel):
    """One slot: its outcome, or `pending`."""

    slot: int
    id: str
    status: str = Field(description=f"{', '.join(Status)}, or {PENDING}, which is not an outcome.")
    finish_reason: str
    text: str
    tokens: int = Field(description="Tokens of the answer.")
    channel_id: int = Field(description="-1 if no channel ran the slot.")
    elapsed_ms: float = Field(description="From the channel's start to the end.")
    text_length: int
    text_sha256: str
    attempt: int
    reason: str
    detail: str
    warnings: list[str]
    audit: AuditBody
    logprobs: list[ChosenBody] = Field(description="One per token of the answer, if asked for.")


class ResultsBody(BaseModel):
    """A request's slots in its result mode."""

    request_id: str
    complete: bool
    results: list[SlotBody]


class CancelledBody(BaseModel):
    """What a cancel ended."""

    request_id: str
    cancelled_slots: list[int]


class HealthBody(BaseModel):
    """Whether questions are answered."""

    status: str


def slot_body(result: SlotResult) -> dict[str, Any]:
    """A slot as in ``SlotBody``."""
    body: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(result, logprobs=()))
    del body["request_id"]
    body["logprobs"] = logprob_records(result)
    return {**body, "tokens": result.tokens, "channel_id": result.channel_id, "elapsed_ms": result.elapsed_ms}


def results_body(request_id: str, results: Sequence[SlotResult]) -> dict[str, Any]:
    """A request as in ``ResultsBody``."""
    complete = all(result.status != PENDING for result in results)
    return {"request_id": request_id, "complete": complete, "results": [slot_body(result) for result in results]}
