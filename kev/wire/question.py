"""Batches between the domain and the wire."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import TypeVar

from kev.domain.errors import InvalidArgument
from kev.domain.question import (
    MAX_QUESTIONS,
    Batch,
    Constraint,
    Isolation,
    Message,
    Priority,
    Question,
    ResultMode,
    Sampling,
    Strategy,
)
from kev.v1 import question_pb2 as pb
from kev.wire.enums import WireEnum, name_of, word_of

E = TypeVar("E", bound=StrEnum)
_USUAL = Sampling()
"""What an absent message says; most questions have none."""
MOST = 2_000
"""Items of a question's lists that are looked at: more than any limit, so that the router can say what is too much,
and few enough that a message of millions of empty ones costs nothing."""


def batch_from(message: pb.Batch, tenant: str) -> Batch:
    """The domain's batch of a wire batch; the tenant comes from the caller's key.

    Raises:
        InvalidArgument: a number that names no word, or more questions than any batch may hold.
    """
    if len(message.questions) > MAX_QUESTIONS:
        allowed = f"must hold 1 to {MAX_QUESTIONS} questions, got {len(message.questions)}"
        raise InvalidArgument("batch.questions", allowed)
    return Batch(
        questions=tuple(_question_from(question, slot) for slot, question in enumerate(message.questions)),
        request_id=message.request_id,
        tenant=tenant,
        isolation=_member(Isolation, pb.Isolation, message.isolation, "batch.isolation"),
        mode=_member(ResultMode, pb.ResultMode, message.mode, "batch.mode"),
        max_parallel=message.max_parallel if message.HasField("max_parallel") else None,
        prefix=message.prefix,
        strategy=_member(Strategy, pb.Strategy, message.strategy, "batch.strategy"),
    )


def batch_to(batch: Batch) -> pb.Batch:
    """The wire batch of a domain batch (without its tenant)."""
    return pb.Batch(
        questions=[_question_to(question) for question in batch.questions],
        request_id=batch.request_id,
        isolation=name_of("ISOLATION", batch.isolation),
        mode=name_of("RESULT_MODE", batch.mode),
        max_parallel=batch.max_parallel,
        prefix=batch.prefix,
        strategy=name_of("STRATEGY", batch.strategy),
    )


def _question_from(message: pb.Question, slot: int) -> Question:
    priority = _member(Priority, pb.Priority, message.priority, f"batch.questions[{slot}].priority")
    return Question(
        text=message.text,
        messages=tuple(Message(role=turn.role, content=turn.content) for turn in message.messages[:MOST]),
        id=message.id,
        max_tokens=message.max_tokens if message.HasField("max_tokens") else None,
        timeout_ms=message.timeout_ms if message.HasField("timeout_ms") else None,
        routing_key=message.routing_key,
        priority=priority or Priority.NORMAL,
        sampling=_sampling_from(message.sampling) if message.HasField("sampling") else _USUAL,
        truncate=message.truncate,
        constraint=_constraint_from(message.constraint) if message.HasField("constraint") else None,
        context_pool=message.context_pool,
    )


def _question_to(question: Question) -> pb.Question:
    return pb.Question(
        text=question.text,
        messages=[pb.Message(role=turn.role, content=turn.content) for turn in question.messages],
        id=question.id,
        max_tokens=question.max_tokens,
        timeout_ms=question.timeout_ms,
        routing_key=question.routing_key,
        priority=name_of("PRIORITY", question.priority),
        sampling=None if question.sampling == _USUAL else _sampling_to(question.sampling),
        truncate=question.truncate,
        constraint=_constraint_to(question.constraint) if question.constraint else None,
        context_pool=question.context_pool,
    )


def _sampling_from(message: pb.Sampling) -> Sampling:
    return Sampling(
        temperature=message.temperature,
        top_k=message.top_k,
        top_p=message.top_p if message.HasField("top_p") else 1.0,
        seed=message.seed if message.HasField("seed") else None,
        stop=tuple(message.stop[:MOST]),
        min_p=message.min_p,
        repetition_penalty=message.repetition_penalty if message.HasField("repetition_penalty") else 1.0,
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        logit_bias=dict(islice(message.logit_bias.items(), MOST)),
        logprobs=message.logprobs if message.HasField("logprobs") else None,
    )


def _sampling_to(sampling: Sampling) -> pb.Sampling:
    return pb.Sampling(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        seed=sampling.seed,
        stop=sampling.stop,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=sampling.logit_bias,
        logprobs=sampling.logprobs,
    )


def _constraint_from(message: pb.Constraint) -> Constraint:
    return Constraint(
        choices=tuple(message.choices.choices[:MOST]), json_schema=message.json_schema, regex=message.regex
    )


def _constraint_to(constraint: Constraint) -> pb.Constraint:
    if constraint.json_schema:
        return pb.Constraint(json_schema=constraint.json_schema)
    if constraint.regex:
        return pb.Constraint(regex=constraint.regex)
    return pb.Constraint(choices=pb.Choices(choices=constraint.choices))


def _member(kind: type[E], wire: WireEnum, number: int, field: str) -> E | None:
    """The domain's word; None for UNSPECIFIED; an unknown number is the caller's mistake."""
    word = word_of(wire, number)
    if word is None:
        raise InvalidArgument(field, f"must be one of {', '.join(kind)}; got number {number}")
    return kind(word) if word else None
