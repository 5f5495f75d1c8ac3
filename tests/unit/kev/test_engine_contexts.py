"""Context pools, prefixes and tenants through the engine. The model's answers depend on every token it sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_lab import FakeModel, fake_model, fake_settings

from inference_svc.loading import LoadedModel
from kev.app.engine import Engine
from kev.domain.errors import InvalidArgument, NotFound, NotServed, QuotaExceeded
from kev.domain.outcome import Status
from kev.domain.result import SlotResult

pytestmark = pytest.mark.model
MANUAL = "The pump has two valves. Never open both at once, and never without water.\n"
QUESTIONS = ["How many valves?", "May I open both?", "请问要水吗？"]


@pytest.fixture(scope="module")
def model(default_model: Path) -> LoadedModel:
    return fake_model(default_model)


@pytest.fixture(scope="module", params=["", "Be kind to everybody who asks."], ids=["bare", "system"])
def engine(model: LoadedModel, request: pytest.FixtureRequest) -> Iterator[Engine]:
    flags = {"isolation_level": "loose", "core_system_prompt": request.param, "context_max_pools": 3}
    with Engine(fake_settings(**flags), model=model) as made:
        yield made


def asked(engine: Engine, queries: Any, **options: Any) -> list[SlotResult]:
    return engine.wait(engine.submit(queries, max_tokens=12, **options), timeout=30)


def texts(results: list[SlotResult]) -> list[str]:
    assert [result.status for result in results] == [Status.ANSWERED] * len(results), results
    return [result.text for result in results]


def as_messages(question: str, *system: str) -> dict[str, Any]:
    told = [{"role": "system", "content": text} for text in system]
    return {"messages": [*told, {"role": "user", "content": question}]}


def test_a_pools_answers_are_those_of_its_text_in_the_conversation(engine: Engine) -> None:
    made = engine.create_context("manual", MANUAL)
    pooled = texts(asked(engine, QUESTIONS, isolation="loose", context_pool="manual"))
    plain = texts(asked(engine, [as_messages(question, MANUAL) for question in QUESTIONS], isolation="strict"))
    assert pooled == plain != texts(asked(engine, QUESTIONS))
    (again,) = asked(engine, QUESTIONS[0], isolation="loose", context_pool="manual")
    assert again.text == plain[0]
    assert again.audit.prompt_tokens > made.tokens
    engine.delete_context("manual")


@pytest.mark.parametrize("level", ["strict", "shared", "loose"])
def test_a_prefixs_answers_are_those_of_its_text_in_the_conversation(engine: Engine, level: str) -> None:
    plain = texts(asked(engine, [as_messages(question, "In Latin.") for question in QUESTIONS], isolation="strict"))
    assert texts(asked(engine, QUESTIONS, isolation=level, prefix="In Latin.")) == plain


def test_a_chain_of_pool_prefix_and_conversation(engine: Engine) -> None:
    engine.create_context("manual", MANUAL)
    talk = [as_messages(question, "Be brief.") for question in QUESTIONS]
    chained = asked(engine, talk, isolation="loose", context_pool="manual", prefix="In Latin.")
    whole = [as_messages(question, MANUAL, "In Latin.", "Be brief.") for question in QUESTIONS]
    assert texts(chained) == texts(asked(engine, whole, isolation="strict"))
    engine.delete_context("manual")


def test_tenants_see_their_own(engine: Engine) -> None:
    one, two = engine.of_tenant("one"), engine.of_tenant("two")
    one.create_context("manual", MANUAL)
    request_id = one.submit(QUESTIONS, isolation="loose", context_pool="manual", max_tokens=8, request_id="same")
    mine = one.wait(request_id, timeout=30)
    assert [context.name for context in one.contexts()] == ["manual"]
    for stranger in (two, engine):
        assert stranger.contexts() == []
        (refused,) = asked(stranger, QUESTIONS[0], isolation="loose", context_pool="manual")
        assert (refused.status, refused.reason) == (Status.REFUSED, "context_pool")
        for call in (
            lambda who: who.wait(request_id, 0),
            lambda who: who.cancel(request_id),
            lambda who: list(who.stream(request_id)),
            lambda who: who.delete_context("manual"),
        ):
            with pytest.raises(NotFound):
                call(stranger)
    two.create_context("manual", "Something else entirely.")
    theirs = two.wait(two.submit(QUESTIONS, isolation="loose", context_pool="manual", max_tokens=8, request_id="same"))
    assert texts(theirs) != texts(mine) == texts(one.wait(request_id, 0))
    two.delete_context("manual")
    assert [context.name for context in one.contexts()] == ["manual"]
    one.delete_context("manual")


def test_a_pool_that_is_deleted_while_its_questions_wait(engine: Engine, model: LoadedModel) -> None:
    """Whoever has read it is answered; who finds it gone is refused by name; nobody waits, nobody is confused."""
    fake = model.backend
    assert isinstance(fake, FakeModel)
    engine.create_context("manual", MANUAL)
    plain = texts(asked(engine, [as_messages(question, MANUAL) for question in QUESTIONS], isolation="strict"))
    fake.gate.clear()
    try:
        request_id = engine.submit(QUESTIONS * 8, isolation="loose", context_pool="manual", max_tokens=12)
        engine.delete_context("manual")
    finally:
        fake.gate.set()
    results = engine.wait(request_id, timeout=30)
    for result in results:
        if result.status == Status.ANSWERED:
            assert result.text == plain[result.slot % 3]
        else:
            assert result.reason == "context_pool", result
    assert len(results) == 24
    (late,) = asked(engine, QUESTIONS[0], isolation="loose", context_pool="manual")
    assert "there is no context pool 'manual'" in late.detail


def test_a_replaced_pool_is_the_new_one(engine: Engine) -> None:
    assert not engine.create_context("manual", "Old text.").replaced
    old = texts(asked(engine, QUESTIONS, isolation="loose", context_pool="manual"))
    assert engine.create_context("manual", MANUAL).replaced
    new = texts(asked(engine, QUESTIONS, isolation="loose", context_pool="manual"))
    assert old != new == texts(asked(engine, [as_messages(question, MANUAL) for question in QUESTIONS]))
    engine.delete_context("manual")


def test_mistakes_are_named(engine: Engine) -> None:
    with pytest.raises(InvalidArgument, match=r"context_pool.*loose"):
        engine.submit(QUESTIONS, isolation="strict", context_pool="manual")
    with pytest.raises(InvalidArgument, match=r"queries\[0\]\.context_pol"):
        engine.submit({"text": "Hi", "context_pol": "manual"})
    with pytest.raises(InvalidArgument, match="prefix"):
        engine.submit(QUESTIONS, prefix=" \n")
    with pytest.raises(InvalidArgument, match="name"):
        engine.create_context("a/b", MANUAL)
    with pytest.raises(InvalidArgument, match="leave room"):
        engine.create_context("manual", "word " * 300)
    tenant = engine.of_tenant("full")
    for number in range(3):
        tenant.create_context(f"n{number}", MANUAL)
    with pytest.raises(QuotaExceeded, match="at most 3"):
        tenant.create_context("n3", MANUAL)


async def test_async_code_has_the_same(engine: Engine) -> None:
    await engine.aio.create_context("manual", MANUAL, ttl_ms=60_000)
    (context,) = await engine.aio.contexts()
    assert context.expires_ms == context.created_ms + 60_000
    await engine.aio.delete_context("manual")
    with pytest.raises(NotFound):
        await engine.aio.delete_context("manual")


def test_a_strict_deployment_serves_no_pools_to_questions(model: LoadedModel) -> None:
    with Engine(fake_settings(), model=model) as strict, pytest.raises(NotServed, match="weaker"):
        strict.submit(QUESTIONS, isolation="loose", context_pool="manual")
