"""What the router writes down: manifests, queued questions, outcomes of slots that never ran. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec.structs import replace

from kev.bus.messages import OVERFLOW, Lane, Manifest, Piece, QueuedQuestion, SlotPlan
from kev.config.settings import Settings
from kev.domain.ids import problem_id
from kev.domain.outcome import Audit, FinishReason, Outcome, Status, text_digest
from kev.domain.question import Batch, Question
from router_svc.admission import MAX_LABEL_CHARS, Refusal
from router_svc.prepare import Ready


def seed_of(rid: str, slot: int) -> int:
    """The seed of a slot that names none: the same whenever the slot is queued again."""
    return int.from_bytes(hashlib.blake2b(problem_id(rid, slot).encode(), digest_size=8).digest(), "little") >> 1


def plan_slots(
    questions: Sequence[Question], accepted_ms: int, default_timeout_ms: int, latest_ms: int | None
) -> tuple[SlotPlan, ...]:
    """The slots' deadlines and labels. Slots that will be refused have them too, for readers; an over-long label is
    cut, so that the manifest of a full batch fits into one message of the broker.

    Args:
        latest_ms: No slot's deadline is later than this (Unix milliseconds); None for no such limit.
    """
    plans = []
    for slot, question in enumerate(questions):
        timeout = question.timeout_ms if question.timeout_ms else default_timeout_ms
        deadline = accepted_ms + timeout
        if latest_ms is not None:
            deadline = min(deadline, latest_ms)
        plans.append(SlotPlan(slot, deadline, question.id[:MAX_LABEL_CHARS], question.priority.value))
    return tuple(plans)


def manifest_of(
    batch: Batch,
    settings: Settings,
    *,
    rid: str,
    request_id: str,
    digest: str,
    accepted_ms: int,
    latest_ms: int | None,
    traceparent: str = "",
) -> Manifest:
    """The first record of a request. What the batch leaves open is the deployment's choice.

    Args:
        latest_ms: As in ``plan_slots``.
        traceparent: The span that accepts it.
    """
    aggregator = settings.aggregator
    return Manifest(
        rid=rid,
        request_id=request_id,
        tenant=batch.tenant,
        digest=digest,
        created_ms=accepted_ms,
        grace_ms=aggregator.grace_ms,
        isolation=batch.isolation or settings.isolation.level,
        mode=batch.mode or aggregator.mode,
        slots=plan_slots(batch.questions, accepted_ms, aggregator.timeout_ms, latest_ms),
        traceparent=traceparent,
    )


def queued(
    manifest: Manifest,
    question: Question,
    ready: Ready,
    *,
    slot: int,
    max_parallel: int,
    tokenizer_digest: str,
    strategy: str,
) -> QueuedQuestion:
    """The question as a worker gets it. Its lane is set when it is placed.

    Everything but the lane follows from manifest and question, so that a
    request that is put in again asks exactly the same.
    """
    seed = question.sampling.seed
    return QueuedQuestion(
        rid=manifest.rid,
        request_id=manifest.request_id,
        tenant=manifest.tenant,
        slot=slot,
        prompt=ready.prompt,
        prefix_tokens=ready.prefix_tokens,
        max_tokens=ready.max_tokens,
        sampling=question.sampling,
        seed=seed_of(manifest.rid, slot) if seed is None else seed,
        deadline_ms=manifest.slots[slot].deadline_ms,
        accepted_ms=manifest.created_ms,
        isolation=manifest.isolation,
        max_parallel=max_parallel,
        lane=Lane(OVERFLOW.source, long=ready.long),
        bucket=ready.bucket,
        branch="",
        tokenizer_digest=tokenizer_digest,
        id=question.id,
        warnings=ready.warnings,
        strategy=strategy,
        pool=ready.pool,
        batch_prefix_tokens=ready.batch_prefix_tokens,
        constraint=question.constraint,
    )


def refused(manifest: Manifest, slot: int, refusal: Refusal, *, now_ms: int, bucket: int = -1) -> Outcome:
    """The outcome of a slot that was refused."""
    return _ended(manifest, slot, Status.REFUSED, FinishReason.REFUSED, refusal, now_ms, bucket)


def cancelled(manifest: Manifest, slot: int, *, now_ms: int, sofar: Piece | None = None, writer: str = "") -> Outcome:
    """The outcome of a slot that the client gave up, with its text and channel so far if a worker ran it.

    Args:
        writer: Tells this call's outcome from that of another one.
    """
    refusal = Refusal("", "the client cancelled it")
    ended = _ended(manifest, slot, Status.CANCELLED, FinishReason.CANCELLED, refusal, now_ms, -1, sofar)
    return replace(ended, writer=writer)


def timed_out(manifest: Manifest, slot: int, *, now_ms: int) -> Outcome:
    """The outcome of a slot whose deadline passed before it could be offered to any channel."""
    refusal = Refusal("", "its deadline passed before it could be offered to a channel")
    return _ended(manifest, slot, Status.TIMED_OUT, FinishReason.TIMEOUT, refusal, now_ms, -1)


def _ended(
    manifest: Manifest,
    slot: int,
    status: Status,
    finish: FinishReason,
    why: Refusal,
    now_ms: int,
    bucket: int,
    sofar: Piece | None = None,
) -> Outcome:
    text, attempt, channel = (sofar.text, sofar.attempt, sofar.channel) if sofar else ("", 0, "")
    worker_id, _, number = channel.rpartition("/")
    return Outcome(
        request_id=manifest.request_id,
        rid=manifest.rid,
        slot=slot,
        status=status,
        finish_reason=finish,
        id=manifest.slots[slot].id,
        text=text,
        text_length=len(text),
        text_sha256=text_digest(text),
        attempt=attempt,
        reason=why.reason,
        detail=why.detail,
        audit=Audit(
            channel=channel,
            worker_id=worker_id,
            channel_id=int(number) if number else -1,
            bucket=bucket,
            accepted_ms=manifest.created_ms,
            finished_ms=now_ms,
            prompt_tokens=why.prompt_tokens,
            attempts=attempt,
            isolation=manifest.isolation.value,
        ),
    )
