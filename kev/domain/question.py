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


class Strategy(StrEnum):
    """How a question gets its hash bucket and its lane."""

    ROUND_ROBIN = "round_robin"
    CONSISTENT_HASH = "consistent_hash"
    SEMANTIC_HASH = "semantic_hash"
    LENGTH_AWARE = "length_aware"


class Message(Struct, frozen=True):
    """One turn of a conversation; ``role`` is system, user or assistant."""

    role: str
    content: str


class Sampling(Struct, frozen=True):
    """How the next token is chosen. ``temperature`` 0 is greedy.

    ``seed`` fixes a slot's random stream; without one, a seed is drawn when
    the question is accepted, so that a retried slot repeats its own text.

    Attributes:
        min_p: Drops tokens less likely than this share of the likeliest one's probability.
        repetition_penalty: Divides the positive logits of tokens in prompt or answer, multiplies negative ones.
        presence_penalty: Taken off the logit of every token that the answer holds.
        frequency_penalty: Taken off a token's logit for each time that the answer holds it.
        logit_bias: Added to the logits of these token ids.
        logprobs: Return log probabilities of the chosen tokens and of so many likeliest ones; None returns none.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    logprobs: int | None = None


class Constraint(Struct, frozen=True):
    """What an answer may be; exactly one of the three is set.

    Attributes:
        choices: It is one of these strings.
        json_schema: Text of a JSON schema that it obeys.
        regex: A regular expression that the whole of it matches.
    """

    choices: tuple[str, ...] = ()
    json_schema: str = ""
    regex: str = ""


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
        constraint: What the answer may be; None leaves it free.
        context_pool: Name of the tenant's context pool that it reads; empty for none.
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
    constraint: Constraint | None = None
    context_pool: str = ""


class Batch(Struct, frozen=True):
    """What a client submits in one call.

    Attributes:
        request_id: Chosen by the client for idempotence, or empty: then the
            router makes one.
        isolation: None takes the deployment's level.
        max_parallel: Most of the batch's questions in any one forward;
            None takes the deployment's ``max_parallel_queries``.
        prefix: Stands before every question, as a system message; empty for none.
        strategy: None takes the deployment's.
    """

    questions: tuple[Question, ...]
    request_id: str = ""
    tenant: str = ""
    isolation: Isolation | None = None
    mode: ResultMode | None = None
    max_parallel: int | None = None
    prefix: str = ""
    strategy: Strategy | None = None
