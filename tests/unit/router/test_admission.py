"""Mistakes in a batch refuse the call, mistakes in a question its slot, and the text names the field."""

from __future__ import annotations

import msgspec
import pytest

from kev.domain.errors import InvalidArgument, NotServed
from kev.domain.question import Batch, Constraint, Isolation, Message, Question, Sampling
from router_svc.admission import Limits, check_batch, check_question

LIMITS = Limits(Isolation.SHARED, max_timeout_ms=10_000, max_text_chars=1000, max_tokens=200, vocabulary=500)
GOOD = Question(text="Why is the sky blue?")


@pytest.mark.parametrize(
    ("batch", "field"),
    [
        (Batch(questions=()), "batch.questions"),
        (Batch(questions=(GOOD,) * 1001), "batch.questions"),
        (Batch(questions=(GOOD,), request_id="has blank"), "batch.request_id"),
        (Batch(questions=(GOOD,), request_id="x" * 129), "batch.request_id"),
        (Batch(questions=(GOOD,), max_parallel=0), "batch.max_parallel"),
    ],
)
def test_a_bad_batch_is_refused_by_field(batch: Batch, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_batch(batch, LIMITS)
    assert caught.value.field == field


def test_isolation_may_be_stronger_but_not_weaker_than_the_deployments() -> None:
    check_batch(Batch(questions=(GOOD,), isolation=Isolation.STRICT), LIMITS)
    check_batch(Batch(questions=(GOOD,), isolation=Isolation.SHARED), LIMITS)
    with pytest.raises(NotServed, match="loose is weaker"):
        check_batch(Batch(questions=(GOOD,), isolation=Isolation.LOOSE), LIMITS)


@pytest.mark.parametrize(
    ("change", "reason", "word"),
    [
        ({"text": ""}, "empty", "text"),
        ({"text": "x" * 1001}, "too_long", "1001"),
        ({"messages": (Message("user", "hello"),)}, "invalid", "not both"),
        ({"text": "", "messages": (Message("robot", "hello"),)}, "invalid", "messages[0].role"),
        ({"text": "", "messages": (Message("system", "hello"),)}, "invalid", "role user"),
        ({"max_tokens": 0}, "invalid", "max_tokens"),
        ({"timeout_ms": 0}, "invalid", "timeout_ms"),
        ({"timeout_ms": 10_001}, "invalid", "10000"),
        ({"routing_key": "k" * 300}, "invalid", "routing_key"),
        ({"id": "k" * 300}, "invalid", "id"),
        ({"sampling": Sampling(temperature=2.1)}, "invalid", "temperature"),
        ({"sampling": Sampling(temperature=float("nan"))}, "invalid", "temperature"),
        ({"sampling": Sampling(temperature=-0.1)}, "invalid", "temperature"),
        ({"sampling": Sampling(top_p=0.0)}, "invalid", "top_p"),
        ({"sampling": Sampling(top_k=-1)}, "invalid", "top_k"),
        ({"sampling": Sampling(seed=1 << 64)}, "invalid", "seed"),
        ({"sampling": Sampling(stop=("a",) * 9)}, "invalid", "stop"),
        ({"sampling": Sampling(stop=("",))}, "invalid", "stop"),
        ({"sampling": Sampling(min_p=1.1)}, "invalid", "sampling.min_p"),
        ({"sampling": Sampling(min_p=float("nan"))}, "invalid", "sampling.min_p"),
        ({"sampling": Sampling(repetition_penalty=0.0)}, "invalid", "sampling.repetition_penalty"),
        ({"sampling": Sampling(repetition_penalty=2.1)}, "invalid", "sampling.repetition_penalty"),
        ({"sampling": Sampling(presence_penalty=-2.1)}, "invalid", "sampling.presence_penalty"),
        ({"sampling": Sampling(frequency_penalty=float("inf"))}, "invalid", "sampling.frequency_penalty"),
        ({"sampling": Sampling(logit_bias={1: 101.0})}, "invalid", "sampling.logit_bias"),
        ({"sampling": Sampling(logit_bias={500: 1.0})}, "invalid", "must be 0 to 499, got 500"),
        ({"sampling": Sampling(logit_bias=dict.fromkeys(range(301), 1.0))}, "invalid", "at most 300"),
        ({"sampling": Sampling(logprobs=21)}, "invalid", "sampling.logprobs: must be 0 to 20"),
        ({"sampling": Sampling(logprobs=20), "max_tokens": 953}, "invalid", "at most 20,000, got 20,013"),
        ({"constraint": Constraint()}, "invalid", "constraint: set one of"),
        ({"constraint": Constraint(regex="(")}, "invalid", "constraint.regex: a ( is not closed"),
        ({"constraint": Constraint(json_schema="[")}, "invalid", "constraint.json_schema: must be JSON"),
        ({"constraint": Constraint(regex="a"), "sampling": Sampling(stop=("a",))}, "invalid", "sampling.stop"),
    ],
)
def test_a_bad_question_is_refused_with_reason_and_field(change: dict[str, object], reason: str, word: str) -> None:
    refusal = check_question(msgspec.structs.replace(GOOD, **change), LIMITS)
    assert refusal is not None
    assert refusal.reason == reason
    assert word in refusal.detail


def test_good_questions_pass() -> None:
    assert check_question(GOOD, LIMITS) is None
    talk = Question(messages=(Message("system", "Be brief."), Message("user", "Hi"), Message("assistant", "Hello.")))
    assert check_question(talk, LIMITS) is None
    limits = Question(text="x" * 1000, max_tokens=1, timeout_ms=10_000, sampling=Sampling(2.0, 5, 1.0, 0, ("a",) * 8))
    assert check_question(limits, LIMITS) is None


def test_the_log_probabilities_of_a_batch_have_a_bound_of_their_own() -> None:
    told = Question(text="x", max_tokens=90, sampling=Sampling(logprobs=10))
    check_batch(Batch(questions=(told,) * 505), LIMITS)
    with pytest.raises(InvalidArgument, match=r"at most 500,000, got 500,940") as caught:
        check_batch(Batch(questions=(told,) * 506), LIMITS)
    assert caught.value.field == "batch.questions"
    alone_too_much = Question(text="x", max_tokens=1 << 31, sampling=Sampling(logprobs=10))
    check_batch(Batch(questions=(alone_too_much, GOOD)), LIMITS)
