"""What may come in. Pure.

A mistake in the batch itself refuses the call. A mistake in one question
refuses that slot: one bad question never fails its batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from kev.domain import logprobs
from kev.domain.constraint import mistake_in
from kev.domain.errors import InvalidArgument, NotServed
from kev.domain.ids import POOL_NAME_ALLOWED, REQUEST_ID_ALLOWED, is_pool_name, is_request_id
from kev.domain.question import MAX_QUESTIONS, Batch, Isolation, Question, Sampling

ROLES = ("system", "user", "assistant")
MAX_STOPS, MAX_STOP_CHARS = 8, 200
MAX_LABEL_CHARS = 256
MAX_BIASES = 300
MAX_MESSAGES = 1_000
_USUAL = Sampling()
_STRONGEST_FIRST = (Isolation.STRICT, Isolation.SHARED, Isolation.LOOSE)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the deployment allows. Characters are Unicode code points.

    Attributes:
        max_tokens: Of an answer, where a question names none.
        vocabulary: Token ids are below this.
    """

    isolation: Isolation
    max_timeout_ms: int
    max_text_chars: int
    max_tokens: int = 256
    vocabulary: int = 1 << 31


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a slot was refused: a machine word, and a sentence that names the field or the counts."""

    reason: str
    detail: str
    prompt_tokens: int = 0


def check_batch(batch: Batch, limits: Limits) -> None:
    """Checks what belongs to the batch as a whole.

    Raises:
        InvalidArgument: names the field and what is allowed.
        NotServed: a weaker isolation level than the deployment's.
    """
    count = len(batch.questions)
    if not 1 <= count <= MAX_QUESTIONS:
        raise InvalidArgument("batch.questions", f"must hold 1 to {MAX_QUESTIONS} questions, got {count}")
    if batch.request_id and not is_request_id(batch.request_id):
        raise InvalidArgument("batch.request_id", f"{REQUEST_ID_ALLOWED}; or empty")
    if batch.max_parallel is not None and batch.max_parallel < 1:
        raise InvalidArgument("batch.max_parallel", f"must be at least 1, got {batch.max_parallel}")
    _check_logprobs(batch, limits)
    level = batch.isolation
    if level is not None and _STRONGEST_FIRST.index(level) > _STRONGEST_FIRST.index(limits.isolation):
        raise NotServed(
            f"batch.isolation: {level} is weaker than this deployment's {limits.isolation} (isolation.level)"
        )
    _check_shared(batch, level or limits.isolation, limits)


def _check_shared(batch: Batch, level: Isolation, limits: Limits) -> None:
    """What the batch's questions share: its prefix, and context pools."""
    if batch.prefix and not batch.prefix.strip():
        raise InvalidArgument("batch.prefix", "must hold text, or be left out")
    if len(batch.prefix) > limits.max_text_chars:
        raise InvalidArgument(
            "batch.prefix", f"must be at most {limits.max_text_chars} characters, got {len(batch.prefix)}"
        )
    for slot, question in enumerate(batch.questions):
        if question.context_pool and level is not Isolation.LOOSE:
            field = f"batch.questions[{slot}].context_pool"
            raise InvalidArgument(field, f"needs a batch of isolation loose; this one's is {level}")


def _check_logprobs(batch: Batch, limits: Limits) -> None:
    each = [logprobs.records(question, limits.max_tokens) for question in batch.questions]
    wanted = sum(count for count in each if count <= logprobs.MOST)  # more than that refuses the one question
    if wanted > logprobs.MOST_OF_BATCH:
        allowed = f"max_tokens x (logprobs + 1) of all questions must be at most {logprobs.MOST_OF_BATCH:,}"
        raise InvalidArgument("batch.questions", f"{allowed}, got {wanted:,}")


def check_question(question: Question, limits: Limits) -> Refusal | None:
    """The first mistake in a question, or None. Whether it fits the context is the budget's affair."""
    chars = chars_of(question)
    if chars > limits.max_text_chars:
        return Refusal("too_long", f"the question has {chars} characters; at most {limits.max_text_chars} are taken")
    mistake = next(_mistakes(question, limits), None)
    if mistake is not None:
        return Refusal("invalid", mistake)
    if not question.text and not question.messages:
        return Refusal("empty", "the question has no text: set text or messages")
    return None


def chars_of(question: Question) -> int:
    """Characters of a question's text or messages."""
    return sum([len(message.content) for message in question.messages], len(question.text))


def _mistakes(question: Question, limits: Limits) -> Iterator[str]:
    if question.text and question.messages:
        yield "text, messages: set one of them, not both"
    if len(question.messages) > MAX_MESSAGES:
        yield f"messages: must be at most {MAX_MESSAGES}, got {len(question.messages)}"
    for index, message in enumerate(question.messages):
        if message.role not in ROLES:
            yield f"messages[{index}].role: must be one of {', '.join(ROLES)}, got {message.role[:40]!r}"
    if question.messages and not any(message.role == "user" for message in question.messages):
        yield "messages: must hold at least one message of role user"
    if question.max_tokens is not None and question.max_tokens < 1:
        yield f"max_tokens: must be at least 1, got {question.max_tokens}"
    if question.timeout_ms is not None and not 1 <= question.timeout_ms <= limits.max_timeout_ms:
        yield f"timeout_ms: must be 1 to {limits.max_timeout_ms}, got {question.timeout_ms}"
    for name, value in (("id", question.id), ("routing_key", question.routing_key)):
        if len(value) > MAX_LABEL_CHARS:
            yield f"{name}: must be at most {MAX_LABEL_CHARS} characters, got {len(value)}"
    if question.context_pool and not is_pool_name(question.context_pool):
        yield f"context_pool: {POOL_NAME_ALLOWED}"
    if question.sampling != _USUAL:
        yield from _sampling_mistakes(question.sampling)
        yield from _changed_mistakes(question.sampling, limits)
    if (wanted := logprobs.records(question, limits.max_tokens)) > logprobs.MOST:
        yield f"sampling.logprobs: max_tokens x (logprobs + 1) must be at most {logprobs.MOST:,}, got {wanted:,}"
    if question.constraint is not None:
        if (mistake := mistake_in(question.constraint)) is not None:
            yield f"constraint.{mistake}" if ": " in mistake else f"constraint: {mistake}"
        if question.sampling.stop:
            yield "constraint, sampling.stop: set one of them; a stop string would cut the answer short"


def _changed_mistakes(sampling: Sampling, limits: Limits) -> Iterator[str]:
    """Of what changes logits, and of what is told about them."""
    if not 0 <= sampling.min_p <= 1:
        yield f"sampling.min_p: must be 0 to 1, got {sampling.min_p}"
    if not 0 < sampling.repetition_penalty <= 2:
        yield f"sampling.repetition_penalty: must be above 0 and at most 2, got {sampling.repetition_penalty}"
    for name in ("presence_penalty", "frequency_penalty"):
        if not -2 <= getattr(sampling, name) <= 2:
            yield f"sampling.{name}: must be -2 to 2, got {getattr(sampling, name)}"
    if len(sampling.logit_bias) > MAX_BIASES:
        yield f"sampling.logit_bias: must be of at most {MAX_BIASES} tokens, got {len(sampling.logit_bias)}"
    for token, bias in sampling.logit_bias.items():
        if not 0 <= token < limits.vocabulary:
            yield f"sampling.logit_bias: token ids must be 0 to {limits.vocabulary - 1}, got {token}"
        if not -100 <= bias <= 100:
            yield f"sampling.logit_bias: must be -100 to 100, got {bias} for token {token}"
    if sampling.logprobs is not None and not 0 <= sampling.logprobs <= logprobs.MOST_TOP:
        yield f"sampling.logprobs: must be 0 to {logprobs.MOST_TOP}, got {sampling.logprobs}"


def _sampling_mistakes(sampling: Sampling) -> Iterator[str]:
    if not (math.isfinite(sampling.temperature) and 0 <= sampling.temperature <= 2):
        yield f"sampling.temperature: must be 0 to 2, got {sampling.temperature}"
    if sampling.top_k < 0:
        yield f"sampling.top_k: must be 0 (all) or more, got {sampling.top_k}"
    if not 0 < sampling.top_p <= 1:
        yield f"sampling.top_p: must be above 0 and at most 1, got {sampling.top_p}"
    if sampling.seed is not None and not 0 <= sampling.seed < 1 << 64:
        yield f"sampling.seed: must be 0 to 2^64 - 1, got {sampling.seed}"
    if len(sampling.stop) > MAX_STOPS:
        yield f"sampling.stop: must be at most {MAX_STOPS} strings, got {len(sampling.stop)}"
    if not all(1 <= len(stop) <= MAX_STOP_CHARS for stop in sampling.stop):
        yield f"sampling.stop: each must have 1 to {MAX_STOP_CHARS} characters"
