"""What travels on the bus. Plain data; MessagePack on the wire.

Unknown fields are ignored and new ones have defaults, so that services of
neighbouring versions understand each other during a rolling update.
"""

from __future__ import annotations

import hashlib
from typing import TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from kev.domain.ids import SHARED_LANES, long_queue
from kev.domain.outcome import Audit, FinishReason, Outcome, Status, text_digest
from kev.domain.question import Constraint, Isolation, ResultMode, Sampling

T = TypeVar("T")


class Lane(Struct, frozen=True, order=True):
    """Where a question waits: a channel's queue, or a shared lane.

    ``source`` is a worker id or one of ``express``, ``overflow``,
    ``background``; ``channel`` is -1 for a shared lane. ``long``: it belongs
    to long questions, with a queue of its own beside the one for the others.
    """

    source: str
    channel: int = -1
    long: bool = False

    @property
    def queue(self) -> str:
        """What ``Bus.take`` calls the queue that this lane is part of."""
        return long_queue(self.source) if self.long else self.source

    @property
    def shared(self) -> bool:
        """Whether any worker may serve it at any time."""
        return self.source in SHARED_LANES

    def __str__(self) -> str:
        return self.queue if self.channel < 0 else f"{self.source}/{self.channel}"


EXPRESS, OVERFLOW, BACKGROUND = (Lane(name) for name in SHARED_LANES)


class Bell(Struct, frozen=True):
    """Something was queued. ``queues``: where, as ``Lane.queue`` says it; none, if nobody knows."""

    queues: frozenset[str] = frozenset()


class SlotPlan(Struct, frozen=True):
    """What a manifest says of one slot. ``deadline_ms`` is Unix milliseconds."""

    slot: int
    deadline_ms: int
    id: str = ""
    priority: str = "normal"


class Manifest(Struct, frozen=True):
    """A request as it was accepted: the first record written, the last kept.

    Attributes:
        digest: Hash of the batch; another digest under the same id is refused.
        grace_ms: How long after a slot's deadline a reader may write its
            ``timed_out`` placeholder.
        traceparent: The span that accepted it; empty while traces are off.
    """

    rid: str
    request_id: str
    tenant: str
    digest: str
    created_ms: int
    grace_ms: int
    isolation: Isolation
    mode: ResultMode
    slots: tuple[SlotPlan, ...]
    traceparent: str = ""


def ended_unrun(
    manifest: Manifest,
    plan: SlotPlan,
    status: Status,
    finish_reason: FinishReason,
    *,
    reason: str,
    detail: str,
    finished_ms: int = 0,
) -> Outcome:
    """The outcome of a slot of which nothing but its plan is known."""
    return Outcome(
        request_id=manifest.request_id,
        rid=manifest.rid,
        slot=plan.slot,
        status=status,
        finish_reason=finish_reason,
        id=plan.id,
        text_sha256=text_digest(""),
        reason=reason,
        detail=detail,
        audit=Audit(accepted_ms=manifest.created_ms, finished_ms=finished_ms, isolation=manifest.isolation.value),
    )


class PoolRef(Struct, frozen=True):
    """Which context pool a question reads: its key on the bus, and the digest and number of its tokens."""

    key: str
    digest: str
    tokens: int


class PoolInfo(Struct, frozen=True):
    """What the bus knows of a context pool, without its tokens.

    Attributes:
        key: Of tenant and name; see ``pool_key``.
        digest: SHA-256 of the tokens, in hex; see ``digest_of_tokens``.
        tokens: How many there are.
        tokenizer_digest: Of the tokenizer that made them.
        created_ms, expires_ms: Unix milliseconds; 0 for a pool that does not expire.
        first: Whether it begins the prompt: it was made for a deployment without a system prompt.
    """

    key: str
    tenant: str
    name: str
    digest: str
    tokens: int
    tokenizer_digest: str
    created_ms: int
    expires_ms: int = 0
    first: bool = False

    @property
    def ref(self) -> PoolRef:
        """What a question holds of it."""
        return PoolRef(self.key, self.digest, self.tokens)

    def live(self, now_ms: int) -> bool:
        """Whether it has not expired."""
        return self.expires_ms == 0 or now_ms < self.expires_ms


class ContextPool(Struct, frozen=True):
    """A context pool: read-only tokens that stand between system prompt and conversation.

    Attributes:
        token_bytes: Token ids, little-endian int32.
    """

    info: PoolInfo
    token_bytes: bytes

    def ids(self) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """The tokens, int32 ``[tokens]``."""
        return np.frombuffer(self.token_bytes, dtype="<i4").astype(np.int32)


def digest_of_tokens(token_bytes: bytes) -> str:
    """A pool's digest: SHA-256 of its little-endian int32 tokens, in hex."""
    return hashlib.sha256(token_bytes).hexdigest()


class QueuedQuestion(Struct, frozen=True):
    """One question in a queue: everything a worker needs to answer it.

    Attributes:
        prompt: Token ids, little-endian int32: the rendered, budgeted prompt.
        prefix_tokens: Leading tokens that are the deployment's system prompt.
        pool: The context pool whose tokens stand behind those; they are not part of ``prompt``.
        batch_prefix_tokens: How many tokens behind system prompt and pool are the batch's prefix; part of ``prompt``.
        strategy, home, placement: As in the audit.
        seed: Of the slot's random stream; always set.
        deadline_ms: Unix milliseconds; the worker ends the slot there.
        lane: Where the router put it (a worker that adopts an orphan differs).
        tokenizer_digest: Of the tokenizer that made ``prompt``.
    """

    rid: str
    request_id: str
    tenant: str
    slot: int
    prompt: bytes
    prefix_tokens: int
    max_tokens: int
    sampling: Sampling
    seed: int
    deadline_ms: int
    accepted_ms: int
    isolation: Isolation
    max_parallel: int
    lane: Lane
    bucket: int
    branch: str
    tokenizer_digest: str
    id: str = ""
    warnings: tuple[str, ...] = ()
    pool: PoolRef | None = None
    batch_prefix_tokens: int = 0
    constraint: Constraint | None = None
    strategy: str = ""
    home: str = ""
    placement: str = ""

    def tokens(self) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """The prompt, int32 ``[prompt_tokens]``."""
        return np.frombuffer(self.prompt, dtype="<i4").astype(np.int32)


class Piece(Struct, frozen=True, array_like=True):
    """A streamed piece of a slot's text. ``offset`` counts characters (code points)."""

    slot: int
    attempt: int
    channel: str
    offset: int
    text: str


class Delta(Struct, frozen=True):
    """The pieces of all slots of one request after one forward of one worker."""

    rid: str
    worker_id: str
    pieces: tuple[Piece, ...]


class CancelHint(Struct, frozen=True):
    """Makes a cancel fast; the truth is the ``cancelled`` outcome."""

    rid: str
    slots: tuple[int, ...]


READY = "ready"
"""State of a worker that takes questions."""


class WorkerLease(Struct, frozen=True):
    """A worker's beat.

    Attributes:
        channels: Size of the channel pool; queues ``<worker_id>/0 .. channels - 1``.
        long_channels: How many of them, the last ones, take long questions and no others.
        state: ``ready`` or ``draining``.
        levels: Isolation levels served (``strict`` only after its self-test).
        max_context: Most positions of one channel.
    """

    worker_id: str
    channels: int
    free: int
    state: str
    model_digest: str
    tokenizer_digest: str
    max_context: int
    backend: str = ""
    variant: str = ""
    levels: tuple[str, ...] = ()
    address: str = ""
    beat: int = 0
    long_channels: int = 0


class DeadLetter(Struct, frozen=True):
    """A question that killed its workers, kept for the operator."""

    question: QueuedQuestion
    reason: str
    strikes: int
    at_ms: int


class RequestRecord(Struct, frozen=True):
    """A request as the broker holds it: the manifest and the outcomes so far."""

    manifest: Manifest
    outcomes: dict[int, Outcome]

    def open_slots(self) -> tuple[int, ...]:
        """Slots without an outcome, ascending."""
        return tuple(plan.slot for plan in self.manifest.slots if plan.slot not in self.outcomes)


def encode(message: Struct) -> bytes:
    """MessagePack of any message of this file."""
    return msgspec.msgpack.encode(message)


def decode(data: bytes, kind: type[T]) -> T:
    """The reverse of ``encode``; raises ``msgspec.ValidationError`` on bad data."""
    return msgspec.msgpack.decode(data, type=kind)
