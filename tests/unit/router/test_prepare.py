"""Preparing questions: a long batch does not hold up a short one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from router_lab import settings_with

from kev.config.source import ConfigError
from kev.domain.question import Isolation, Message, Question
from kev.tokens.tokenizer import Tokenizer
from router_svc.admission import Limits, Refusal
from router_svc.around import Around
from router_svc.longest import Longest
from router_svc.normalise import clean
from router_svc.prepare import Preparer, Ready, limits_of
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


@pytest.fixture(scope="module")
def small(tokenizer: Tokenizer) -> Iterator[Preparer]:
    settings = settings_with(core__max_context=64, router__default_max_tokens=8)
    preparer = Preparer(settings, tokenizer, limits_of(settings, tokenizer), bucketing(settings.router))
    yield preparer
    preparer.close()


def test_what_is_far_too_long_is_refused_before_it_is_tokenised(
    small: Preparer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small._chat(), "render_behind", None)
    refused = small.prepare(Question(text="a b " * 200_000))
    assert isinstance(refused, Refusal)
    assert refused.reason == "too_long"
    assert "at least 9876 tokens; allowed: 63, as max_context is 64" in refused.detail
    before = Message("assistant", "x " * 200_000)
    conversation = Question(messages=(Message("user", "Hi"), before, Message("user", "So?")), truncate=True)
    assert isinstance(small.prepare(conversation), Refusal)


def test_a_question_to_be_cut_is_cut_before_it_is_tokenised_and_says_so(small: Preparer) -> None:
    long = small.prepare(Question(text="word " * 100_000, truncate=True))
    short = small.prepare(Question(text="word " * 2_000, truncate=True))
    assert isinstance(long, Ready)
    assert isinstance(short, Ready)
    assert long.prompt == short.prompt
    assert long.warnings[0].startswith("length_warning: of the question's 499999 characters only the first ")


@given(text=st.text(max_size=200), most=st.integers(2, 40))
def test_the_bound_never_names_more_tokens_than_there_are(tokenizer: Tokenizer, text: str, most: int) -> None:
    longest = Longest(most, tokenizer.longest_piece, counted=0)
    text = clean(text)
    tokens = len(tokenizer.encode_text(text))
    assert longest.least_tokens([text]) <= tokens
    assert text.startswith(longest.first(text))
