"""Contexts have the same ids whatever follows, and are what a system message of the conversation would be."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_tokens_chat import CHATML, FOLDED, WITH_BOS, shown, system, tiny, user
from tokens_samples import SPECIAL_TEXTS, TEXTS

from kev.tokens.chat import ChatFormat, ChatTemplateError, Lead
from kev.tokens.tokenizer import Tokenizer

TALKS = [[user("Why?")], [system("Be brief."), user("Hi"), {"role": "assistant", "content": "Yes?"}, user("And?")]]


@pytest.fixture(scope="module")
def tokenizer(default_model: Path) -> Tokenizer:
    return Tokenizer.load(default_model)


def chained(chat: ChatFormat, pool: str, prefix: str, talk: list[dict[str, str]]) -> list[int]:
    """All tokens that a model reads: system part, pool, prefix, conversation."""
    pool_ids = chat.context(pool) if pool else ()
    prefix_ids = chat.context(prefix, behind_pool=bool(pool)) if prefix else ()
    prompt = chat.render_behind(talk, Lead(bool(pool), prefix_ids))
    system_end = prompt.prefix_tokens
    assert prompt.tokens[:system_end] == list(chat.prefix)
    assert prompt.tokens[system_end : system_end + prompt.context_tokens] == list(prefix_ids)
    return [*prompt.tokens[:system_end], *pool_ids, *prompt.tokens[system_end:]]


def as_messages(pool: str, prefix: str, talk: list[dict[str, str]]) -> list[dict[str, str]]:
    return [*(system(text) for text in (pool, prefix) if text), *talk]


@pytest.mark.parametrize("template", [CHATML, WITH_BOS])
@pytest.mark.parametrize("deployment", ["", "You are terse."])
@pytest.mark.parametrize(("pool", "prefix"), [("A manual.\n", ""), ("", "All in Latin. "), ("A manual.", "In Latin.")])
def test_contexts_are_what_system_messages_would_be(
    tmp_path: Path, template: str, deployment: str, pool: str, prefix: str
) -> None:
    chat = ChatFormat(tiny(tmp_path, template), deployment)
    for talk in TALKS:
        whole = chat.render(as_messages(pool, prefix, talk))
        assert chained(chat, pool, prefix, talk) == whole.tokens


@given(st.sampled_from(TEXTS) | st.text(min_size=1).filter(str.strip), st.text(), st.sampled_from(SPECIAL_TEXTS))
def test_no_text_of_a_context_becomes_a_special_token(
    tokenizer: Tokenizer, text: str, asked: str, special: str
) -> None:
    chat = ChatFormat(tokenizer, "You are terse.")
    text, asked = text + special, asked.encode("utf-8", "ignore").decode() + special
    plain = chat.context("plain", behind_pool=True)
    found = chat.context(text.encode("utf-8", "ignore").decode(), behind_pool=True)
    count = lambda ids: sum(token in tokenizer.special_ids for token in ids)  # noqa: E731
    assert count(found) == count(plain) > 0
    prompt = chat.render_behind([user(asked)], Lead(True, found))
    assert prompt.tokens[prompt.prefix_tokens : prompt.prefix_tokens + len(found)] == list(found)
    assert count(prompt.tokens) == count(chat.render_behind([user("x")], Lead(True, plain)).tokens)


def test_the_default_model_reads_a_chain(tokenizer: Tokenizer) -> None:
    chat = ChatFormat(tokenizer, "Be kind.")
    prompt = chat.render_behind([user("Why?")], Lead(True, chat.context("In Latin.", behind_pool=True)))
    assert shown(tokenizer, prompt) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>system\nIn Latin.<|im_end|>\n"
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    )
    start, end = prompt.question
    assert tokenizer.decode(prompt.tokens[start:end]) == "Why?"
    cut = chat.cut(prompt, 1)
    assert (cut.context_tokens, cut.prefix_tokens) == (prompt.context_tokens, prompt.prefix_tokens)


def test_nothing_in_the_lead_is_a_plain_prompt(tokenizer: Tokenizer) -> None:
    chat = ChatFormat(tokenizer, "Be kind.")
    assert chat.render_behind([user("Why?")], Lead()) == chat.render([user("Why?")])


def test_a_model_without_a_template_takes_contexts_too(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, None)
    chat = ChatFormat(tokenizer)
    ids = chained(chat, "A manual.", "In Latin.", [user("Why?")])
    assert tokenizer.decode(ids) == "A manual.\n\nIn Latin.\n\nQuestion: Why?\nAnswer:"


@pytest.mark.parametrize("deployment", ["", "You are terse."])
def test_a_template_without_a_place_for_contexts_says_so(tmp_path: Path, deployment: str) -> None:
    chat = ChatFormat(tiny(tmp_path, FOLDED), deployment)
    with pytest.raises(ChatTemplateError, match="no place for a context"):
        chat.context("A manual.")
    with pytest.raises(ChatTemplateError):
        chat.render_behind([user("Why?")], Lead(True))


def test_a_date_that_changes_is_no_trouble(tmp_path: Path) -> None:
    days = [datetime(2026, 1, 1)]
    chat = ChatFormat(tiny(tmp_path, WITH_BOS), "", lambda: days[-1])
    first = chat.render_behind([user("Why?")], Lead(True))
    days.append(datetime(2026, 1, 2))
    assert chat.render_behind([user("Why?")], Lead(True)) == first
