"""The short way to a prompt gives what the long way gives, for any text, or is not taken."""

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokens_samples import SPECIAL_TEXTS, TEXTS, write_gguf

from kev.tokens.chat import ChatFormat
from kev.tokens.opaque import LookedInside, Unread
from kev.tokens.tokenizer import Tokenizer

TAIL = "{% if add_generation_prompt %}{{ '<think>answer\n' }}{% endif %}"
PLAIN = "{% for m in messages %}{{ '<|begin|>' + m['role'] + '\n' + m['content'] + '<|stop|>' }}{% endfor %}" + TAIL
TRIMMED = PLAIN.replace("m['content']", "m['content'] | trim")
ONE_SIDE = PLAIN.replace("m['content']", "m['content'].rstrip()")
CHECKED = (
    "{% for m in messages %}{% if m.content is string and m.content %}{{ '<|' ~ m.content ~ '|>' }}{% endif %}"
    "{% endfor %}"
)
DATED = "{{ bos_token + strftime_now('%d %b') }}" + TRIMMED
FOLDED = "[{% for m in messages %}{{ m.content | trim }}; {% endfor %}]"
FRAMED = {
    "folded": FOLDED,
    "plain": PLAIN,
    "trimmed": TRIMMED,
    "one side": ONE_SIDE,
    "checked": CHECKED,
    "dated": DATED,
    "none": None,
}
READING = [
    "m.content.split('|')[0]",
    "m.content | upper",
    "m.content | replace('a', 'b')",
    "m.content | tojson",
    "m.content + m.content",
    "(m.content ~ '') | replace('secret', '')",
    "m.content[:50]",
    "m.content | length | string + m.content",
    "('short' if 'short' in m.content else '') + m.content",
    "('short' if m.content in ['brief', 'short'] else '') + m.content",
    "('a ' + m.content) | trim",
    "m.content | trim('x')",
    "(m.content | trim) if m.content.startswith(' ') else m.content",
    "('%s' % m.content)",
]
PIECES = [
    "<",
    "|",
    ">",
    "<|begin|>",
    "<|stop|>",
    "<think>",
    "<|im_end|>",
    "\ue000",
    "\ue003",
    " ",
    "\n",
    "\t",
    "\u3000",
]
PIECES += ["\u200b", "é", "e\u0301", "你", "👨\u200d👩", "x", "Hello", "'s", "42", "\u00a0", "\x85", "\x1f"]
HOSTILE = st.one_of(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.text(max_size=40))


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def agrees(chat: ChatFormat, text: str) -> None:
    short, long = chat.render([user(text)]), chat._rendered([user(text)], True)
    assert short == long
    assert chat.render([user(text)], place=False).tokens == long.tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("templates")


def tiny(folder: Path, name: str, template: str | None) -> Tokenizer:
    return Tokenizer.load(write_gguf(folder / f"{name}.gguf", template=template))


@pytest.fixture(scope="module", params=[(name, prompt) for name in FRAMED for prompt in ("", "Be <|stop|> brief")])
def chat(request: pytest.FixtureRequest, folder: Path) -> ChatFormat:
    name, system_prompt = request.param
    chat = ChatFormat(tiny(folder, name.replace(" ", "_"), FRAMED[name]), system_prompt)
    assert chat._frame is not None
    return chat


@given(text=HOSTILE)
@settings(max_examples=60, deadline=None)
def test_short_and_long_give_the_same_tokens(chat: ChatFormat, text: str) -> None:
    agrees(chat, text)


@pytest.mark.model
@given(text=HOSTILE)
@settings(max_examples=150, deadline=None)
def test_also_with_the_default_model(default_chat: ChatFormat, text: str) -> None:
    agrees(default_chat, text)


@pytest.fixture(scope="module", params=["", "You are Kev."])
def default_chat(request: pytest.FixtureRequest, default_model: Path) -> ChatFormat:
    chat = ChatFormat(Tokenizer.load(default_model), request.param)
    assert chat._frame is not None
    return chat


@pytest.mark.model
def test_also_for_known_texts(default_chat: ChatFormat) -> None:
    for text in (*TEXTS, *SPECIAL_TEXTS):
        agrees(default_chat, text)


@pytest.mark.parametrize("expression", READING)
def test_a_template_that_reads_the_text_is_run_each_time(folder: Path, expression: str) -> None:
    chat = ChatFormat(tiny(folder, "reading", PLAIN.replace("m['content']", f"({expression})")))
    assert chat._frame is None
    for text in ("short", "same", "a secret|b", " axbx ", "brief"):
        agrees(chat, text)


def test_what_no_special_token_may_be_made_of_stays_text(chat: ChatFormat) -> None:
    special = set(chat._tokenizer.special_ids)
    harmless = sum(token in special for token in chat.render([user("x")]).tokens)
    for text in [*SPECIAL_TEXTS, "<|stop|>", "stop|><|begin", "<|", "|>", "<think>"]:
        assert sum(token in special for token in chat.render([user(text)]).tokens) == harmless


def test_a_new_day_is_noticed(folder: Path) -> None:
    today = [datetime(2026, 1, 2)]
    chat = ChatFormat(tiny(folder, "day", DATED), "Sys", clock=lambda: today[0])
    first = chat.render([user("Hi")])
    today[0] = datetime(2026, 1, 3)
    second, third = chat.render([user("Hi")]), chat.render([user("Hi")])
    assert first.tokens != second.tokens == third.tokens
    assert chat._frame is not None


def test_conversations_and_open_prompts_run_the_template(chat: ChatFormat) -> None:
    alone = chat.render([user("x")])
    assert chat.render([user("x"), {"role": "assistant", "content": "y"}, user("x")]).tokens != alone.tokens
    assert len(chat.render([user("x")], add_generation_prompt=False).tokens) <= len(alone.tokens)


def test_a_lone_surrogate_is_refused_either_way(chat: ChatFormat) -> None:
    for render in (chat.render, lambda messages: chat._rendered(messages, True)):
        with pytest.raises(ValueError, match="surrogate"):
            render([user("a\ud800")])


def test_an_unread_text_can_be_written_joined_and_trimmed_only() -> None:
    unread = Unread("nlrb")
    assert "".join(["<", unread.strip(), ">"]) == "<b>"
    assert "".join([unread.lstrip().rstrip()]) == "b"
    assert "".join(["a" + unread + "c"]) == "anc"
    assert unread
    for look in (len, list, hash, repr, str.upper, lambda text: text == "n", lambda text: "n" in text):
        with pytest.raises(LookedInside):
            look(unread) if look is not str.upper else unread.upper()
    with pytest.raises(LookedInside):
        ("a" + unread).strip()
