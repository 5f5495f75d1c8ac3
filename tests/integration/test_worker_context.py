"""Context pools, batch prefixes and conversations, from the bus to the outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
from worker_lab import FakeBackend, bus_for, letters, naive_tokens, outcomes, question, settings_with, submit, worker

from kev.bus.messages import BACKGROUND, EXPRESS, ContextPool, PoolInfo, QueuedQuestion, digest_of_tokens
from kev.domain.ids import pool_key
from kev.domain.outcome import Outcome, Status
from kev.domain.question import Isolation

POOL = [8 + 3 * n % 40 for n in range(50)]
SYSTEM = [9, 10, 11]


def _pool(tokens: list[int] = POOL) -> ContextPool:
    data = np.array(tokens, "<i4").tobytes()
    return ContextPool(
        PoolInfo(pool_key("a", "doc"), "a", "doc", digest_of_tokens(data), len(tokens), "fake-tokens", 0), data
    )


def _ask(slot: int, own: list[int], **changes: Any) -> QueuedQuestion:
    values = {"prefix_tokens": 3, "isolation": Isolation.LOOSE, "tenant": "a", "pool": _pool().info.ref}
    return question(slot, [*SYSTEM, *own], **(values | changes))


async def _answered(*asked: QueuedQuestion, backend: Any = None, pool: bool = True) -> dict[int, Outcome]:
    settings = settings_with(isolation__level="loose")
    bus = bus_for(settings)
    if pool:
        await bus.put_pool(_pool())
    async with worker(bus, backend, settings=settings):
        await submit(bus, asked)
        return await outcomes(bus)


async def test_a_pool_is_read_where_it_stands_and_counted() -> None:
    backend = FakeBackend()
    asked = [_ask(n, [20 + n, 8]) for n in range(6)]
    answers = await _answered(*asked, backend=backend)
    for item in asked:
        whole = [*SYSTEM, *POOL, 20 + item.slot, 8]
        assert answers[item.slot].text == letters(naive_tokens(whole, 8, item.sampling, item.seed, 128))
        audit = answers[item.slot].audit
        assert (audit.prompt_tokens, audit.shared_tokens) == (55, 53)
    prompt_rows = backend.rows - sum(outcome.audit.completion_tokens - 1 for outcome in answers.values())
    assert prompt_rows == 53 + 6 * 2


async def test_a_pool_that_is_gone_refuses_its_questions_only() -> None:
    answers = await _answered(_ask(0, [8]), _ask(1, [8], pool=None), pool=False)
    assert (answers[0].status, answers[0].reason) == (Status.REFUSED, "context_pool")
    assert "gone" in answers[0].detail
    assert answers[1].status is Status.ANSWERED


async def test_a_pool_that_was_replaced_is_not_read_by_older_questions() -> None:
    answers = await _answered(_ask(0, [8], pool=_pool(tokens=[9] * 50).info.ref))
    assert (answers[0].reason, "replaced" in answers[0].detail) == ("context_pool", True)


async def test_only_loose_reads_a_pool() -> None:
    answers = await _answered(_ask(0, [8], isolation=Isolation.SHARED), _ask(1, [8], isolation=Isolation.STRICT))
    assert [answers[slot].reason for slot in (0, 1)] == ["context_pool"] * 2


async def test_too_long_with_its_pool_is_refused_in_numbers() -> None:
    answers = await _answered(_ask(0, [8] * 80))
    assert answers[0].reason == "too_long"
    assert answers[0].detail.startswith(
        "the prompt has 133 tokens, 50 of them of its context pool; a channel holds 128"
    )


async def test_a_conversation_of_the_same_tenant_goes_on_where_it_was() -> None:
    settings = settings_with(isolation__level="loose")
    bus = bus_for(settings)
    prompt = [8 + n % 30 for n in range(40)]
    said = naive_tokens(prompt, 8, question(0, []).sampling, 0, 128)
    longer = [*prompt, *said, 9, 8]
    shared = {}
    async with worker(bus, settings=settings):
        for rid, tokens, tenant, level in (
            ("r1", prompt, "a", Isolation.LOOSE),
            ("r2", longer, "a", Isolation.LOOSE),
            ("r3", longer, "b", Isolation.LOOSE),
            ("r4", longer, "a", Isolation.STRICT),
        ):
            await submit(bus, [question(0, tokens, rid=rid, tenant=tenant, isolation=level)])
            shared[rid] = (await outcomes(bus, rid))[0]
    assert shared["r2"].text == shared["r3"].text == shared["r4"].text
    reused = [shared[rid].audit.shared_tokens for rid in ("r1", "r2", "r3", "r4")]
    assert reused == [0, (40 + len(said) - 1) // 16 * 16, 0, 0]


async def test_a_batch_prefix_is_shared_from_the_level_shared_on() -> None:
    batch = [12 + n % 9 for n in range(30)]
    levels = [Isolation.STRICT, Isolation.SHARED, Isolation.SHARED, Isolation.LOOSE]
    asked = [
        _ask(n, [*batch, 8 + n], isolation=level, pool=None, batch_prefix_tokens=30, lane=lane)
        for n, (level, lane) in enumerate(zip(levels, (EXPRESS, EXPRESS, BACKGROUND, BACKGROUND), strict=True))
    ]
    answers = await _answered(*asked)
    assert [answers[slot].audit.shared_tokens for slot in range(4)] == [3, 33, 33, 33]


async def test_metrics_say_what_was_found() -> None:
    settings = settings_with(isolation__level="loose")
    bus = bus_for(settings)
    await bus.put_pool(_pool())
    async with worker(bus, settings=settings) as running:
        await submit(bus, [_ask(n, [20 + n]) for n in range(4)])
        await outcomes(bus)
        value = running._metrics.registry.get_sample_value
        found = {
            result: value("kev_inference_context_lookups_total", {"kind": "pool", "result": result})
            for result in ("hit", "miss")
        }
        assert value("kev_inference_kv_region_pages", {"region": "prefix"}) >= 4
    assert found == {"hit": 3, "miss": 1}
