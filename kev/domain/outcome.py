"""How a slot ends: the one final record, and how it came about."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from msgspec import Struct


class Status(StrEnum):
    """The five ends of a slot. ``pending`` is not among them: it is no outcome."""

    ANSWERED = "answered"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    FAILED = "failed"


class FinishReason(StrEnum):
    """Why a slot's text ends where it ends."""

    STOP = "stop"
    LENGTH = "length"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    ERROR = "error"


class Branch(StrEnum):
    """How a question got its channel."""

    HOME = "home"
    SPILL_RING = "spill_ring"
    SPILL_LEAST = "spill_least"
    OVERFLOW = "overflow"
    EXPRESS = "express"
    BACKGROUND = "background"
    ADOPTED = "adopted"


class TokenLogprob(Struct, frozen=True):
    """A token, its bytes, and its log probability (natural) before temperature and filters."""

    token: int
    text: bytes
    logprob: float


class ChosenToken(Struct, frozen=True):
    """One token of an answer, and the likeliest ones in its place, likeliest first."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...] = ()


class Audit(Struct, frozen=True):
    """How an outcome came about; every field is filled where it applies.

    Attributes:
        channel: Global channel name ``<worker_id>/<channel_id>``, or empty
            when no channel ran the slot.
        bucket: Hash bucket, or -1 when the strategy uses none.
        accepted_ms, started_ms, finished_ms: Wall stamps, Unix milliseconds;
            for people. ``started_ms`` is 0 when no channel ran the slot.
        queued_ms, elapsed_ms: Durations, milliseconds: acceptance to start,
            and start to end.
        attempts: How often a worker took the question.
        forwards: Forwards that the slot took part in.
        variant: Backend variant for which bit-equality is promised.
        strategy: Chose the bucket.
        home: Global name of the bucket's home channel when the question was placed, or empty.
        placement: Why the router placed it where it did, for people.
        shared_tokens: Prompt tokens whose KV was there already, or was computed once for several questions.
    """

    channel: str = ""
    worker_id: str = ""
    channel_id: int = -1
    bucket: int = -1
    branch: str = ""
    accepted_ms: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    queued_ms: float = 0.0
    elapsed_ms: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    attempts: int = 0
    forwards: int = 0
    isolation: str = ""
    backend: str = ""
    variant: str = ""
    model_digest: str = ""
    strategy: str = ""
    home: str = ""
    placement: str = ""
    shared_tokens: int = 0


class Outcome(Struct, frozen=True):
    """The one final record of a slot.

    Attributes:
        id: The caller's own label of the question.
        text: The whole answer; partial when timed out or cancelled.
        text_length: Characters (Unicode code points) of ``text``.
        text_sha256: Hex digest of ``text`` in UTF-8: proves that the streamed
            pieces and the record agree.
        attempt: The attempt that wrote this record (1-based), 0 when none ran.
        reason: Machine word for refused and failed slots, e.g. ``empty``,
            ``too_long``, ``overloaded``, ``non_finite``; else empty.
        detail: One sentence for people, with the counts.
        warnings: E.g. ``length_warning: …`` after a truncation asked for.
        logprobs: One per token of the answer, where the question asked for them.
        writer: Drawn by a writer that has to know whether it was the first: two may write the same in the same
            millisecond. Else empty; not told to readers.
    """

    request_id: str
    rid: str
    slot: int
    status: Status
    finish_reason: FinishReason
    id: str = ""
    text: str = ""
    text_length: int = 0
    text_sha256: str = ""
    attempt: int = 0
    reason: str = ""
    detail: str = ""
    warnings: tuple[str, ...] = ()
    audit: Audit = Audit()
    logprobs: tuple[ChosenToken, ...] = ()
    writer: str = ""


def text_digest(text: str) -> str:
    """Hex SHA-256 of ``text`` in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()
