"""What a client asks: batches, questions and their limits. Plain data."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

MAX_QUESTIONS = 1000
"""Most questions in one batch; clients split longer files."""


class Isolation(StrEnum):
    """How much a batch's questions may share. Sharing never changes an answer."""

    STRICT = "strict"
    SHARED = "shared"
    LOOSE = "loose"


class Priority(StrEnum):
    """The band a question waits in."""

    EXPRESS = "express"
    NORMAL = "normal"
    BACKGROUND = "background"


class ResultMode(StrEnum):
    """The order of a batch's results."""

    SLOT_MAP = "slot_map"
    SEQ_APPEND = "seq_append"
    PRIORITY = "priority"


class Message(Struct, frozen=True):
    """One turn of a conversation; ``role`` is system, user or assistant."""

    role: str
    content: str


class Sampling(Struct, frozen=True):
    """How the next token is chosen. ``temperature`` 0 is greedy.

    ``seed`` fixes a slot's random stream; without one, a seed is drawn when
    the question is accepted, so that a retried slot repeats its own text.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()


class Question(Struct, frozen=True):
    """One item of a batch: ``text``, or ``messages``, never both.

    Attributes:
        id: The caller's own label, returned with the answer.
        max_tokens: Most new tokens; None takes the deployment's default.
        timeout_ms: Time from acceptance to the slot's deadline; None takes
            the deployment's default.
        routing_key: Questions with the same key share a home channel under
            ``consistent_hash``.
        truncate: Cut an over-long question instead of refusing it; the
            answer then carries a ``length_warning``.
    """

    text: str = ""
    messages: tuple[Message, ...] = ()
    id: str = ""
    max_tokens: int | None = None
    timeout_ms: int | None = None
    routing_key: str = ""
    priority: Priority = Priority.NORMAL
    sampling: Sampling = Sampling()
    truncate: bool = False


class Batch(Struct, frozen=True):
    """What a client submits in one call.

    Attributes:
        request_id: Chosen by the client for idempotence, or empty: then the
            router makes one.
        isolation: None takes the deployment's level.
        max_parallel: Most of the batch's questions in any one forward;
            None takes the deployment's ``max_parallel_queries``.
    """

    questions: tuple[Question, ...]
    request_id: str = ""
    tenant: str = ""
    isolation: Isolation | None = None
    mode: ResultMode | None = None
    max_parallel: int | None = None
