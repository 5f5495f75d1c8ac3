"""Preparing questions: a long batch does not hold up a short one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from router_lab import settings_with

from kev.config.source import ConfigError
from kev.domain.question import Isolation, Question
from kev.tokens.tokenizer import Tokenizer
from router_svc.admission import Limits, Refusal
from router_svc.around import Around
from router_svc.prepare import Preparer, Ready
from router_svc.strategies import Bucketing, bucketing


@pytest.fixture
def preparer(tokenizer: Tokenizer) -> Iterator[Preparer]:
    settings = settings_with()
    made = Preparer(settings, tokenizer, Limits(Isolation.STRICT, 600_000, 1_000_000), bucketing(settings.router))
    yield made
    made.close()


async def test_results_come_in_order_whatever_the_chunks(preparer: Preparer) -> None:
    questions = [Question(text="word " * 600 if slot % 2 else "") for slot in range(40)]
    found = await preparer.prepare_all(questions)
    assert [isinstance(one, Ready) for one in found] == [bool(slot % 2) for slot in range(40)]


async def test_a_short_batch_does_not_wait_for_the_end_of_a_long_one(
    preparer: Preparer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, stuck = threading.Event(), Refusal("held", "held")

    def slow(question: Question, bucketing: Bucketing, around: Around) -> Ready | Refusal:
        if question.text != "short":
            assert gate.wait(60)
        return stuck

    monkeypatch.setattr(preparer, "prepare", slow)
    long = asyncio.create_task(preparer.prepare_all([Question(text="long " * 2_000)] * 50))
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(60):
            assert await preparer.prepare_all([Question(text="short")]) == [stuck]
        assert not long.done()
    finally:
        gate.set()
    assert await long == [stuck] * 50


def test_a_system_prompt_that_fills_the_context_stops_the_start(tokenizer: Tokenizer) -> None:
    settings = settings_with(core__max_context=64, core__system_prompt="word " * 60)
    limits = Limits(Isolation.STRICT, 600_000, 1_000_000)
    with pytest.raises(
        ConfigError, match=r"core\.system_prompt: its 6\d tokens leave no room.*core\.max_context is 64"
    ):
        Preparer(settings, tokenizer, limits, bucketing(settings.router))
