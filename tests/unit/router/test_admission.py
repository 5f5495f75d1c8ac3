"""Mistakes in a batch refuse the call, mistakes in a question its slot, and the text names the field."""

from __future__ import annotations

import msgspec
import pytest

from kev.domain.errors import InvalidArgument, NotServed
from kev.domain.question import Batch, Isolation, Message, Question, Sampling
from router_svc.admission import Limits, check_batch, check_question, digest_of

LIMITS = Limits(Isolation.SHARED, max_timeout_ms=10_000, max_text_chars=1000)
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


def test_the_digest_covers_what_is_asked_and_nothing_else() -> None:
    batch = Batch(questions=(GOOD, GOOD))
    same = digest_of(batch)
    assert digest_of(msgspec.structs.replace(batch, request_id="other", tenant="other")) == same
    changes = [
        {"questions": (GOOD,)},
        {"isolation": Isolation.STRICT},
        {"max_parallel": 2},
        {"questions": (GOOD, msgspec.structs.replace(GOOD, sampling=Sampling(seed=1)))},
        {"questions": (GOOD, msgspec.structs.replace(GOOD, truncate=True))},
        {"questions": (GOOD, Question(messages=(Message("user", GOOD.text),)))},
    ]
    digests = {digest_of(msgspec.structs.replace(batch, **change)) for change in changes}
    assert len(digests | {same}) == len(changes) + 1


def test_the_digest_is_the_same_in_every_release() -> None:
    batch = Batch(questions=(Question(text="One?", id="a", max_tokens=5), Question(text="Zwei £?")))
    assert digest_of(batch) == "f7e730fe2a6ec0daa3f8fa9d60f96a7ba07ffc82ca142a75ca8ddb703b10a2ed"
