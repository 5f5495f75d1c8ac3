"""Context pools and batch prefixes on their way through the router: chain, budget, quotas, tenants."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from router_lab import batch_of, taken_from

from kev.bus.memory import MemoryBus
from kev.bus.messages import QueuedQuestion
from kev.domain.errors import InvalidArgument, NotFound, NotServed, QuotaExceeded
from kev.domain.question import Batch, Isolation, Message, Question
from kev.tokens.tokenizer import Tokenizer
from router_svc.router import Router

LOOSE = {"isolation__level": "loose", "core__system_prompt": "Be kind."}
MANUAL = "The pump has two valves. Never open both.\n"


def loose(*questions: Question, **more: Any) -> Batch:
    return Batch(questions=questions, **{"request_id": "r1", "isolation": Isolation.LOOSE, **more})


def whole(bus_tokens: bytes, question: QueuedQuestion) -> list[int]:
    """All ids that the model reads: the pool's stand behind the system prompt."""
    ids = question.tokens().tolist()
    pool = memoryview(bus_tokens).cast("i").tolist()
    return [*ids[: question.prefix_tokens], *pool, *ids[question.prefix_tokens :]]


async def only(bus: MemoryBus) -> QueuedQuestion:
    (question,) = await taken_from(bus)
    return question


async def reason(bus: MemoryBus, router: Router, batch: Batch) -> str:
    submitted = await router.submit(batch)
    record = await bus.request(_rid(batch))
    assert submitted.refused_slots == tuple(sorted(record.outcomes))
    return " ".join(f"{outcome.reason}: {outcome.detail}" for outcome in record.outcomes.values())


def _rid(batch: Batch) -> str:
    from kev.domain.ids import rid_of

    return rid_of(batch.tenant, batch.request_id)


@pytest.mark.parametrize("system_prompt", ["", "Be kind."])
async def test_pool_and_prefix_are_what_system_messages_would_be(start: Any, bus: MemoryBus, system_prompt: str):
    router = await start(bus, **{**LOOSE, "core__system_prompt": system_prompt})
    info, replaced = await router.contexts.create("", "manual", MANUAL)
    assert (info.name, replaced, info.expires_ms) == ("manual", False, 0)
    await router.submit(loose(Question(text="How many valves?", context_pool="manual"), prefix="Answer in Latin."))
    pooled = await only(bus)
    assert (pooled.pool, pooled.isolation) == (info.ref, Isolation.LOOSE)
    assert pooled.batch_prefix_tokens > 0
    told = [Message("system", MANUAL), Message("system", "Answer in Latin."), Message("user", "How many valves?")]
    await router.submit(loose(Question(messages=tuple(told)), request_id="r2"))
    plain = await only(bus)
    assert plain.pool is None
    assert whole((await bus.pool(info.key)).token_bytes, pooled) == plain.tokens().tolist()


async def test_questions_with_and_without_a_pool_share_a_batch(start: Any, bus: MemoryBus, tokenizer: Tokenizer):
    router = await start(bus, **LOOSE)
    await router.contexts.create("", "manual", MANUAL)
    questions = [Question(text="With?", context_pool="manual"), Question(text="Without?"), Question(text="Alone?")]
    await router.submit(loose(*questions, prefix="In Latin."))
    found = {question.slot: question for question in await taken_from(bus)}
    assert [found[slot].pool is not None for slot in range(3)] == [True, False, False]
    prefixes = {
        tuple(one.tokens()[one.prefix_tokens : one.prefix_tokens + one.batch_prefix_tokens].tolist())
        for one in found.values()
    }
    assert len(prefixes) == 1
    assert "In Latin." in tokenizer.decode(list(prefixes.pop()))


async def test_a_prefix_needs_no_loose_batch(start: Any, bus: MemoryBus):
    router = await start(bus)
    await router.submit(msgspec.structs.replace(batch_of("Why?"), prefix="In Latin."))
    question = await only(bus)
    assert (question.isolation, question.batch_prefix_tokens > 0) == (Isolation.STRICT, True)


async def test_a_pool_that_is_not_there_refuses_its_slot_only(start: Any, bus: MemoryBus):
    router = await start(bus, **LOOSE)
    await router.contexts.create("other", "manual", MANUAL)
    text = await reason(bus, router, loose(Question(text="Hi", context_pool="manual"), Question(text="Hello there")))
    assert text == "context_pool: there is no context pool 'manual'; it may have expired"
    assert len(await taken_from(bus)) == 1


async def test_a_bad_pool_name_refuses_its_slot(start: Any, bus: MemoryBus):
    router = await start(bus, **LOOSE)
    assert "invalid: context_pool: must be" in await reason(bus, router, loose(Question(text="Hi", context_pool="a b")))


async def test_a_pool_of_another_model_or_system_prompt_is_not_read(start: Any, bus: MemoryBus):
    maker = await start(bus, **{**LOOSE, "core__system_prompt": ""})
    await maker.contexts.create("", "manual", MANUAL)
    router = await start(bus, **LOOSE)
    text = await reason(bus, router, loose(Question(text="Hi", context_pool="manual")))
    assert text == "context_pool: 'manual' was made for another model or system prompt; create it anew"


@pytest.mark.parametrize("level", [Isolation.STRICT, Isolation.SHARED, None])
async def test_a_pool_needs_a_loose_batch(start: Any, bus: MemoryBus, level: Isolation | None):
    router = await start(bus, **({} if level is None else LOOSE))
    batch = loose(Question(text="Hi"), Question(text="Hi", context_pool="manual"), isolation=level)
    with pytest.raises(InvalidArgument, match="isolation loose") as caught:
        await router.submit(batch)
    assert caught.value.field == "batch.questions[1].context_pool"


async def test_a_loose_batch_on_a_strict_deployment_is_refused(start: Any, bus: MemoryBus):
    router = await start(bus)
    with pytest.raises(NotServed, match="weaker"):
        await router.submit(loose(Question(text="Hi", context_pool="manual")))


async def test_a_strict_deployment_makes_no_pool_that_nothing_could_read(start: Any, bus: MemoryBus):
    router = await start(bus)
    with pytest.raises(NotServed, match=r"isolation loose.*isolation\.level"):
        await router.contexts.create("", "manual", MANUAL)
    assert await router.contexts.list("") == ()


async def test_the_budget_counts_the_pool(start: Any, bus: MemoryBus):
    router = await start(bus, **LOOSE, core__max_context=128)
    info, _ = await router.contexts.create("", "manual", "word " * 60)
    short = Question(text="Why?", context_pool="manual", max_tokens=100)
    long = Question(text="why " * 60, context_pool="manual")
    assert "too_long: the prompt has 1" in await reason(bus, router, loose(short, long))
    question = await only(bus)
    assert question.max_tokens == 128 - info.tokens - len(question.tokens())
    assert "max_tokens_lowered" in question.warnings[0]
    cut = msgspec.structs.replace(long, truncate=True)
    await router.submit(loose(cut, request_id="r3"))
    question = await only(bus)
    assert info.tokens + len(question.tokens()) < 128


@pytest.mark.parametrize(
    ("prefix", "word"),
    [("  \n", "must hold text"), ("\u200b", "nothing to read"), ("word " * 200, "leave room"), ("x" * 999, "999")],
)
async def test_a_prefix_that_cannot_be_is_refused_by_name(start: Any, bus: MemoryBus, prefix: str, word: str):
    limit = 998 if len(prefix) == 999 else 100_000
    router = await start(bus, core__max_context=128, router__max_text_chars=limit)
    with pytest.raises(InvalidArgument, match=word) as caught:
        await router.submit(msgspec.structs.replace(batch_of("Why?"), prefix=prefix))
    assert caught.value.field == "batch.prefix"
    assert await taken_from(bus) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a*b"}, "name"),
        ({"name": "a" * 129}, "name"),
        ({"text": " \n"}, "text"),
        ({"text": "\u200b"}, "text"),
        ({"text": "x" * 2001}, "text"),
        ({"text": "word " * 300}, "text"),
        ({"ttl_ms": 0}, "ttl_ms"),
        ({"ttl_ms": 1 << 63}, "ttl_ms"),
    ],
)
async def test_a_pool_that_cannot_be_is_refused_by_name(start: Any, bus: MemoryBus, change: dict[str, Any], field: str):
    router = await start(bus, isolation__level="loose", core__max_context=256, router__max_text_chars=2000)
    with pytest.raises(InvalidArgument) as caught:
        await router.contexts.create(**{"tenant": "", "name": "manual", "text": MANUAL, **change})
    assert caught.value.field == field
    assert await router.contexts.list("") == ()


async def test_a_tenant_has_so_many_pools_of_such_a_size(start: Any, bus: MemoryBus):
    router = await start(bus, isolation__level="loose", context__max_pools=2, context__max_pool_tokens=40)
    for tenant in ("a", "b"):
        for name in ("one", "two", "two"):
            await router.contexts.create(tenant, name, MANUAL)
    with pytest.raises(QuotaExceeded, match="at most 2"):
        await router.contexts.create("a", "three", MANUAL)
    await router.contexts.delete("a", "one")
    await router.contexts.create("a", "three", MANUAL)
    assert [info.name for info in await router.contexts.list("a")] == ["three", "two"]
    assert [info.name for info in await router.contexts.list("b")] == ["one", "two"]
    with pytest.raises(InvalidArgument, match=r"at most 40 .*max_pool_tokens"):
        await router.contexts.create("b", "two", "word " * 60)


async def test_a_deleted_pool_is_not_found(start: Any, bus: MemoryBus):
    router = await start(bus, **LOOSE)
    await router.contexts.create("", "manual", MANUAL)
    with pytest.raises(NotFound):
        await router.contexts.delete("other", "manual")
    await router.contexts.delete("", "manual")
    with pytest.raises(NotFound):
        await router.contexts.delete("", "manual")
    assert "there is no context pool" in await reason(bus, router, loose(Question(text="Hi", context_pool="manual")))


@pytest.mark.parametrize("change", ["gone", "larger"])
async def test_a_batch_that_comes_twice_is_not_refused_for_what_became_of_its_pool(
    start: Any, bus: MemoryBus, change: str
):
    """The first submit put its question in: the worker that has it may have read the pool long ago."""
    router = await start(bus, **LOOSE, core__max_context=128)
    await router.contexts.create("", "manual", MANUAL)
    batch = loose(Question(text="How many valves?", context_pool="manual"), Question(text="Hi", context_pool="none"))
    assert (await router.submit(batch)).refused_slots == (1,)
    taken = await only(bus)
    if change == "gone":
        await router.contexts.delete("", "manual")
    else:
        await router.contexts.create("", "manual", "word " * 105)
    again = await router.submit(batch)
    assert (again.refused_slots, again.duplicate) == ((1,), True)
    record = await bus.request(_rid(batch))
    assert record.open_slots() == (taken.slot,)


async def test_a_question_that_never_went_in_is_refused_when_its_batch_comes_again(start: Any, bus: MemoryBus):
    """Whoever opened the request died before it put anything in, and its pool is gone by now."""
    router = await start(bus, **LOOSE)
    await router.contexts.create("", "manual", MANUAL)
    batch = loose(Question(text="How many valves?", context_pool="manual"))
    opening = router._opening
    await opening.open(batch, "r1", await router._bucketing(None), None, None)
    await router.contexts.delete("", "manual")
    assert "there is no context pool" in await reason(bus, router, batch)


async def test_a_pool_expires(start: Any, tokenizer: Tokenizer):
    now = [1_000_000]
    bus = MemoryBus(wall_ms=lambda: now[0])
    router = await start(bus, **LOOSE, clock=lambda: now[0])
    info, _ = await router.contexts.create("", "manual", MANUAL, ttl_ms=5_000)
    assert info.expires_ms == 1_005_000
    now[0] += 5_000
    assert await router.contexts.list("") == ()
    with pytest.raises(NotFound):
        await router.contexts.delete("", "manual")


async def test_another_prefix_is_another_batch(start: Any, bus: MemoryBus):
    from kev.domain.errors import AlreadyUsed

    router = await start(bus)
    batch = batch_of("Why?")
    await router.submit(msgspec.structs.replace(batch, prefix="In Latin."))
    assert (await router.submit(msgspec.structs.replace(batch, prefix="In Latin."))).duplicate
    with pytest.raises(AlreadyUsed):
        await router.submit(batch)
