"""Stored context on the real model: computed once, of the size that was planned, and no answer is changed by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from default_model_lab import Lab, door_questions, lab, said, town

from inference_svc.backends.native.variants import choose
from inference_svc.models import inspect
from inference_svc.planning.plan import Wish, plan
from inference_svc.planning.sizes import kv_page
from inference_svc.rows import PAGE_SIZE, pages_for
from kev.domain.result import SlotResult

pytestmark = [pytest.mark.model, pytest.mark.timeout(3000)]


def planned_pages(model: Path, channels: int, positions: int, prefix: int) -> int:
    """As ``kev plan`` counts channels at their fullest that share a prefix."""
    config, _ = inspect(model)
    wish = Wish(channels, positions, prefix, "fp32", rows=256, parallel=channels, threads=2, unified=False)
    return plan(config, wish, choose(), memory=1 << 34).kv_all_full // kv_page(config, "fp32")


def own_rows(results: list[SlotResult]) -> int:
    """Prompt tokens that were computed for one question alone."""
    return sum(result.audit.prompt_tokens - result.audit.shared_tokens for result in results)


@pytest.mark.parametrize(
    ("prefix", "count", "tokens"), [(200, 4, 6), pytest.param(1000, 32, 32, marks=pytest.mark.slow)]
)
def test_a_batch_prefix_is_computed_once(default_model: Path, prefix: int, count: int, tokens: int) -> None:
    with lab(router_channel_pool_size=count, core_max_context=prefix + 100, core_kv_pages=count * 70) as asked:
        batch: dict[str, Any] = {"prefix": town(asked.tokenizer, prefix), "max_tokens": tokens}
        shared = asked.ask(door_questions(count), isolation="shared", **batch)
        counted, pages, stored = asked.counted, asked.most_pages, asked.stored_pages()
        strict = asked.ask(door_questions(count), isolation="strict", **batch)
        print(f"shared: {counted}, {pages} pages; strict: {asked.counted}, {asked.most_pages} pages")
    assert said(shared) == said(strict)
    assert {result.audit.shared_tokens for result in shared} == {prefix}
    assert {result.audit.shared_tokens for result in strict} == {0}
    assert (counted["batch miss"], counted["batch hit"]) == (1, count - 1)
    assert counted["prefill"] == prefix + own_rows(shared)
    assert asked.counted["prefill"] == count * prefix + own_rows(shared)
    assert stored == pages_for(prefix)
    # The last token of an answer is never computed, so nobody needs a position for it.
    ends = {result.audit.prompt_tokens + tokens - 1 for result in shared}
    assert pages == stored + count * (pages_for(ends.pop()) - prefix // PAGE_SIZE)
    assert not ends
    fullest = shared[0].audit.prompt_tokens + tokens - 1
    assert pages == planned_pages(default_model, count, fullest, prefix)


@pytest.mark.parametrize(
    ("document", "count", "compared"), [(200, 10, 2), pytest.param(4000, 50, 4, marks=pytest.mark.slow)]
)
def test_a_context_pool_is_computed_once(default_model: Path, document: int, count: int, compared: int) -> None:
    pages = 2 * pages_for(document) + 200
    with lab(router_channel_pool_size=8, core_max_context=document + 100, core_kv_pages=pages) as asked:
        text, questions = town(asked.tokenizer, document), door_questions(count)
        assert asked.engine.create_context("town", text).tokens == document
        pooled = asked.ask(questions, isolation="loose", context_pool="town", max_tokens=8)
        counted = asked.counted
        print(f"pool: {counted}, {asked.most_pages} pages, {asked.stored_pages()} of them stored in the end")
        told = [{"role": "system", "content": text}]
        alone = [{"messages": [*told, {"role": "user", "content": question}]} for question in questions[:compared]]
        plain = asked.ask(alone, isolation="strict", max_tokens=8)
    assert said(pooled)[:compared] == said(plain)
    assert (counted["pool miss"], counted["pool hit"], counted["pool evicted"]) == (1, count - 1, 0)
    assert min(result.audit.shared_tokens for result in pooled) >= document
    assert counted["prefill"] == document + own_rows(pooled)


@pytest.mark.parametrize(
    ("begin", "turns", "longest"), [(90, 2, 448), pytest.param(1500, 6, 1856, marks=pytest.mark.slow)]
)
def test_a_conversation_goes_on_after_it_was_evicted(default_model: Path, begin: int, turns: int, longest: int) -> None:
    with lab(router_channel_pool_size=2, core_max_context=longest, core_kv_pages=pages_for(longest) + 4) as asked:
        text = town(asked.tokenizer, begin)
        kept = _talk(asked, "one", text, turns, between=lambda: None)
        assert [asked.counted[f"conversation {word}"] for word in ("hit", "evicted")] == [1, 0]

        def crowd() -> None:
            """A question that may come to need nearly all of the room."""
            asked.ask(["Is it red?"], isolation="strict", max_tokens=longest, constraint={"choices": ["yes", "no"]})
            assert asked.counted["conversation evicted"] > 0
            assert asked.stored_pages() == 0

        evicted = _talk(asked, "two", text, turns, between=crowd)
        strict = _talk(asked, "two", text, turns, between=lambda: None, isolation="strict")
    assert said(evicted) == said(kept) == said(strict)
    computed = [own_rows([result]) for result in kept]
    print(f"prompt rows kept: {computed}, evicted: {[own_rows([result]) for result in evicted]}")
    assert [result.audit.shared_tokens > begin for result in kept] == [False, *[True] * (turns - 1)]
    assert [result.audit.shared_tokens for result in evicted] == [0] * turns


def _talk(
    asked: Lab, tenant: str, text: str, turns: int, *, between: Callable[[], None], isolation: str = "loose"
) -> list[SlotResult]:
    """A conversation that the client sends whole each time."""
    results: list[SlotResult] = []
    messages: list[dict[str, str]] = []
    for number in range(turns):
        if number:
            between()
        question = f"What colour is the door of house {10 + number}?"
        messages.append({"role": "user", "content": question if number else f"{text}\n{question}"})
        who = asked.engine.of_tenant(tenant)
        results += asked.ask([{"messages": list(messages)}], who, isolation=isolation, max_tokens=12)
        messages.append({"role": "assistant", "content": results[-1].text})
    return results
