"""What a reader sees of a request: frames while it runs, results at its end."""

from __future__ import annotations

from msgspec import Struct

from kev.domain.outcome import Audit, ChosenToken, Outcome

PENDING = "pending"
"""Status of a slot that has no outcome yet. It is not an outcome."""


class SlotResult(Struct, frozen=True):
    """A slot as a reader sees it: its outcome, or ``pending``.

    Attributes:
        status: A ``Status`` value, or ``pending``.
        finish_reason: A ``FinishReason`` value, or empty while pending.
    """

    request_id: str
    slot: int
    id: str = ""
    status: str = PENDING
    finish_reason: str = ""
    text: str = ""
    text_length: int = 0
    text_sha256: str = ""
    attempt: int = 0
    reason: str = ""
    detail: str = ""
    warnings: tuple[str, ...] = ()
    audit: Audit = Audit()
    logprobs: tuple[ChosenToken, ...] = ()

    @classmethod
    def of(cls, outcome: Outcome) -> SlotResult:
        """The reader's view of an outcome."""
        return cls(
            request_id=outcome.request_id,
            slot=outcome.slot,
            id=outcome.id,
            status=outcome.status.value,
            finish_reason=outcome.finish_reason.value,
            text=outcome.text,
            text_length=outcome.text_length,
            text_sha256=outcome.text_sha256,
            attempt=outcome.attempt,
            reason=outcome.reason,
            detail=outcome.detail,
            warnings=outcome.warnings,
            audit=outcome.audit,
            logprobs=outcome.logprobs,
        )

    @property
    def ok(self) -> bool:
        """Whether the slot was answered."""
        return self.status == "answered"

    @property
    def channel_id(self) -> int:
        """Number of the channel that ran the slot; -1 if none did."""
        return self.audit.channel_id

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds from the channel's start to the end."""
        return self.audit.elapsed_ms

    @property
    def tokens(self) -> int:
        """Tokens of the answer."""
        return self.audit.completion_tokens


class Results(Struct, frozen=True):
    """A request's slots in its result mode."""

    request_id: str
    results: tuple[SlotResult, ...]
    complete: bool


class Frame(Struct, frozen=True):
    """One piece of a slot's stream.

    Attributes:
        channel: Global channel name, or empty.
        text_offset: Characters before this piece since the last reset.
        reset: The slot starts again: drop its text so far.
        result: On the slot's last frame: the whole record (``pending`` when
            the reader leaves before the slot ends).
    """

    request_id: str
    slot: int
    channel: str = ""
    attempt: int = 0
    text_offset: int = 0
    text: str = ""
    reset: bool = False
    result: SlotResult | None = None


class ResumePoint(Struct, frozen=True):
    """Where a resuming reader stands in one slot."""

    slot: int
    attempt: int
    text_offset: int


class Submitted(Struct, frozen=True):
    """The router's reply to a submit."""

    request_id: str
    slots: int
    refused_slots: tuple[int, ...] = ()
    duplicate: bool = False
