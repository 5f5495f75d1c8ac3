"""From the end of a run to the final record with its audit. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from inference_svc.hands import Held
from inference_svc.report import End
from kev.bus.messages import QueuedQuestion
from kev.domain.outcome import Audit, Branch, FinishReason, Outcome, Status, text_digest

STATUS = {
    FinishReason.STOP: Status.ANSWERED,
    FinishReason.LENGTH: Status.ANSWERED,
    FinishReason.TIMEOUT: Status.TIMED_OUT,
    FinishReason.CANCELLED: Status.CANCELLED,
    FinishReason.REFUSED: Status.REFUSED,
    FinishReason.ERROR: Status.FAILED,
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this worker is; part of its lease and of every audit record."""

    worker_id: str
    model_digest: str
    tokenizer_digest: str
    backend: str
    variant: str
    max_context: int
    channels: int
    levels: tuple[str, ...]
    long_channels: int = 0
    address: str = ""

    def channel_name(self, channel: int) -> str:
        """The global name of a channel."""
        return f"{self.worker_id}/{channel}"


@dataclass(frozen=True, slots=True)
class Now:
    """One moment on both clocks."""

    monotonic: float
    wall_ms: int

    def wall_of(self, monotonic: float) -> int:
        """The wall stamp of another moment of the monotonic clock."""
        return self.wall_ms - round((self.monotonic - monotonic) * 1000)


def outcome_of(held: Held, end: End, identity: Identity, now: Now) -> Outcome:
    """The final record of a slot whose run has ended, or that never ran (``end.started`` is None)."""
    question = held.question
    return Outcome(
        request_id=question.request_id,
        rid=question.rid,
        slot=question.slot,
        status=STATUS[end.finish],
        finish_reason=end.finish,
        id=question.id,
        text=end.text,
        text_length=len(end.text),
        text_sha256=text_digest(end.text),
        attempt=held.attempt,
        reason=end.reason,
        detail=end.detail or _detail(end),
        warnings=question.warnings,
        audit=_audit(held, end, identity, now),
        logprobs=end.logprobs,
    )


def early_end(finish: FinishReason, reason: str, detail: str, now: Now) -> End:
    """The end of a slot that no forward had."""
    return End(0, finish, "", 0, 0, None, now.monotonic, reason, detail)


def branch_of(question: QueuedQuestion, worker_id: str) -> str:
    """How the question got its channel: another worker's queue makes it ``adopted``."""
    own = question.lane.shared or question.lane.source == worker_id
    return question.branch if own else Branch.ADOPTED.value


def _detail(end: End) -> str:
    if end.finish is FinishReason.TIMEOUT:
        return f"the deadline passed after {end.tokens} tokens"
    return ""


def _audit(held: Held, end: End, identity: Identity, now: Now) -> Audit:
    question, ran = held.question, end.started is not None
    started = end.ended if end.started is None else end.started
    return Audit(
        channel=identity.channel_name(held.channel) if ran else "",
        worker_id=identity.worker_id,
        channel_id=held.channel if ran else -1,
        bucket=question.bucket,
        strategy=question.strategy,
        branch=branch_of(question, identity.worker_id),
        accepted_ms=question.accepted_ms,
        started_ms=now.wall_of(started) if ran else 0,
        finished_ms=now.wall_of(end.ended),
        queued_ms=float(max(0, now.wall_of(started) - question.accepted_ms)),
        elapsed_ms=round((end.ended - started) * 1000, 3),
        prompt_tokens=len(question.prompt) // 4 + (question.pool.tokens if question.pool else 0),
        completion_tokens=end.tokens,
        shared_tokens=end.reused,
        attempts=held.taken.attempt,
        forwards=end.forwards,
        isolation=question.isolation.value,
        backend=identity.backend,
        variant=identity.variant,
        model_digest=identity.model_digest,
        home=question.home,
        placement=question.placement,
    )
