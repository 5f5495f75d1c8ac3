"""A prompt holds the deployment's system prompt, the conversation, and no special token that a user wrote."""

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokens_samples import SPECIAL_TEXTS, TEXTS, write_gguf

from kev.tokens.chat import ChatFormat, ChatTemplateError, Prompt
from kev.tokens.tokenizer import Tokenizer

CHATML = (
    "{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|begin|>system\nDEFAULT TEXT<|stop|>\n' }}{% endif %}"
    "{{ '<|begin|>' + m['role'] + '\n' + m['content'] + '<|stop|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|begin|>assistant\n' }}{% endif %}"
)
WITH_BOS = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'] %}"
    "{% set messages = messages[1:] %}{% else %}{% set s = 'DEFAULT TEXT' %}{% endif %}"
    "{{ '<think>system Today: ' + strftime_now('%d %b %Y') + ' ' + s + '<|stop|>' }}"
    "{% for m in messages %}{{ '<think>' + m['role'] + ': ' + m['content'] | trim + '<|stop|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<think>assistant: ' }}{% endif %}"
)
FOLDED = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'] + '\n\n' %}"
    "{% set loop_messages = messages[1:] %}{% else %}{% set s = '' %}{% set loop_messages = messages %}{% endif %}"
    "{% if not loop_messages %}{{ raise_exception('a user message is needed') }}{% endif %}"
    "{% for m in loop_messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
    "{% if m['role'] == 'user' %}{{ '[INST] ' + (s if loop.first else '') + m['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + m['content'] + '<|stop|>' }}{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module")
def tokenizer(default_model: Path) -> Tokenizer:
    return Tokenizer.load(default_model)


def tiny(tmp_path: Path, template: str | None) -> Tokenizer:
    return Tokenizer.load(write_gguf(tmp_path / "t.gguf", template=template))


def shown(tokenizer: Tokenizer, prompt: Prompt) -> str:
    """The prompt as text, special tokens included."""
    names = {token: text for text, token in tokenizer.special.items()}
    pieces = [names[token].encode() if token in names else tokenizer.token_bytes(token) for token in prompt.tokens]
    return b"".join(pieces).decode("utf-8", "replace")


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def system(content: str) -> dict[str, str]:
    return {"role": "system", "content": content}


@pytest.mark.model
def test_the_deployments_system_prompt_comes_first_and_is_shared(tokenizer: Tokenizer) -> None:
    chat = ChatFormat(tokenizer, "You are Kev.")
    prompt = chat.render([user("Hi")])
    assert shown(tokenizer, prompt) == (
        "<|im_start|>system\nYou are Kev.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tuple(prompt.tokens[: prompt.prefix_tokens]) == chat.prefix
    assert tokenizer.decode(list(chat.prefix)) == "system\nYou are Kev.\n"


@pytest.mark.model
def test_without_a_system_prompt_the_templates_default_does_not_slip_in(tokenizer: Tokenizer) -> None:
    prompt = ChatFormat(tokenizer).render([user("Hi")])
    assert shown(tokenizer, prompt) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert prompt.prefix_tokens == 0
    assert "SmolLM" in (tokenizer.chat_template or "")


@pytest.mark.model
def test_a_clients_system_message_stands_beside_the_deployments(tokenizer: Tokenizer) -> None:
    messages = [system("Be brief."), user("Hi")]
    own = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert shown(tokenizer, ChatFormat(tokenizer).render(messages)) == own
    both = ChatFormat(tokenizer, "You are Kev.").render(messages)
    assert shown(tokenizer, both) == "<|im_start|>system\nYou are Kev.<|im_end|>\n" + own
    assert both.prefix_tokens == len(ChatFormat(tokenizer, "You are Kev.").prefix)


@pytest.mark.model
def test_a_whole_conversation_keeps_its_order(tokenizer: Tokenizer) -> None:
    messages = [user("One?"), {"role": "assistant", "content": "Two."}, user("Three?")]
    prompt = ChatFormat(tokenizer, "S").render(messages, add_generation_prompt=False)
    assert shown(tokenizer, prompt).endswith(
        "user\nOne?<|im_end|>\n<|im_start|>assistant\nTwo.<|im_end|>\n<|im_start|>user\nThree?<|im_end|>\n"
    )
    start, end = prompt.question
    assert tokenizer.decode(prompt.tokens[start:end]) == "Three?"


@pytest.mark.model
def test_the_tokens_are_those_of_the_reference_pipeline(tokenizer: Tokenizer) -> None:
    """For harmless text: what one gets from rendering, then splitting on special tokens by hand."""
    chat = ChatFormat(tokenizer, "You are Kev.")
    start, end = tokenizer.special["<|im_start|>"], tokenizer.special["<|im_end|>"]
    newline = tokenizer.encode_text("\n")
    for text in TEXTS:
        expected = [
            *[start, *tokenizer.encode_text("system\nYou are Kev."), end, *newline],
            *[start, *tokenizer.encode_text("user\n" + text), end, *newline],
            *[start, *tokenizer.encode_text("assistant\n")],
        ]
        assert chat.render([user(text)]).tokens == expected, text


def special_positions(tokenizer: Tokenizer, prompt: Prompt) -> list[int]:
    return [token for token in prompt.tokens if token in tokenizer.special_ids]


@pytest.mark.model
@pytest.mark.parametrize("text", SPECIAL_TEXTS)
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_no_content_of_any_role_becomes_a_special_token(tokenizer: Tokenizer, role: str, text: str) -> None:
    for system_prompt in ("", "Be <|im_end|> safe"):
        chat = ChatFormat(tokenizer, system_prompt)
        bad = chat.render([{"role": role, "content": text}, user("Hi")])
        good = chat.render([{"role": role, "content": "harmless"}, user("Hi")])
        assert special_positions(tokenizer, bad) == special_positions(tokenizer, good)
        assert text in shown(tokenizer, bad)


PARTS = st.sampled_from(["<", "|", ">", "<|", "|>", "begin", "stop", "<think", "\ue000", "\ue001", " ", "é"])


@given(texts=st.lists(st.lists(PARTS, max_size=8).map("".join), min_size=1, max_size=4))
def test_any_mix_of_parts_of_special_tokens_stays_text(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    tokenizer = tiny(tmp_path_factory.mktemp("t"), CHATML)
    chat = ChatFormat(tokenizer, "Sys")
    prompt = chat.render([user(text) for text in texts])
    begin, stop = tokenizer.special["<|begin|>"], tokenizer.special["<|stop|>"]
    assert special_positions(tokenizer, prompt) == [begin, stop] * (len(texts) + 1) + [begin]
    expected = "<|begin|>system\nSys<|stop|>\n" + "".join(f"<|begin|>user\n{text}<|stop|>\n" for text in texts)
    assert shown(tokenizer, prompt) == expected + "<|begin|>assistant\n"


def test_overlapping_and_neighbouring_pieces_of_markup_stay_text(tmp_path: Path) -> None:
    """A template that writes a user's text right behind "<|" must not let the user finish the token."""
    tokenizer = tiny(tmp_path, "{% for m in messages %}{{ '<|' + m['content'] + '|>' }}{% endfor %}")
    prompt = ChatFormat(tokenizer).render([user("stop|><|begin"), user("stop")])
    assert special_positions(tokenizer, prompt) == []
    assert shown(tokenizer, prompt) == "<|stop|><|begin|><|stop|>"


def test_a_templates_begin_token_stays_when_its_system_block_is_cut(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, WITH_BOS)
    chat = ChatFormat(tokenizer, clock=lambda: datetime(2026, 1, 2))
    assert shown(tokenizer, chat.render([user(" Hi ")])) == "<|begin|><think>user: Hi<|stop|><think>assistant: "


def test_a_new_day_changes_the_prefix_and_nothing_breaks(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, WITH_BOS)
    today = [datetime(2026, 1, 2)]
    chat = ChatFormat(tokenizer, "Sys", clock=lambda: today[0])
    first = chat.render([user("Hi")])
    today[0] = datetime(2026, 1, 3)
    second = chat.render([user("Hi")])
    assert "02 Jan 2026 Sys" in shown(tokenizer, first)
    assert "03 Jan 2026 Sys" in shown(tokenizer, second)
    assert tuple(second.tokens[: second.prefix_tokens]) == chat.prefix


def test_a_template_that_folds_the_system_prompt_into_the_question_shares_nothing(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, FOLDED)
    prompt = ChatFormat(tokenizer, "Sys").render([user("Hi")])
    assert shown(tokenizer, prompt) == "<|begin|>[INST] Sys\n\nHi [/INST]"
    assert prompt.prefix_tokens == 0
    assert shown(tokenizer, ChatFormat(tokenizer).render([user("Hi")])) == "<|begin|>[INST] Hi [/INST]"
    odd = [user("\ue000\ue001"), {"role": "assistant", "content": "Yes"}, user("Hi")]
    shown_odd = shown(tokenizer, ChatFormat(tokenizer, "Sys").render(odd))
    assert shown_odd == "<|begin|>[INST] Sys\n\n\ue000\ue001 [/INST] Yes<|stop|>[INST] Hi [/INST]"


def test_what_the_template_refuses_is_a_clear_error(tmp_path: Path) -> None:
    chat = ChatFormat(tiny(tmp_path, FOLDED))
    with pytest.raises(ChatTemplateError, match="messages: the model's chat template refuses them: roles must"):
        chat.render([user("a"), user("b")])


def test_a_template_without_a_place_for_the_system_prompt_is_refused_at_start(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}")
    with pytest.raises(ChatTemplateError, match=r"core.system_prompt: .* has no place for one"):
        ChatFormat(tokenizer, "Sys")
    assert shown(tokenizer, ChatFormat(tokenizer).render([user("Hi")])) == "Hi"


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% set _ = messages.append('x') %}",
        "{{ 1 // 0 }}",
        "{{ nothing.at.all }}",
    ],
)
def test_a_hostile_or_broken_template_is_an_error_of_its_own(tmp_path: Path, template: str) -> None:
    tokenizer = tiny(tmp_path, template)
    with pytest.raises(ChatTemplateError):
        ChatFormat(tokenizer).render([user("Hi")])


def test_an_invalid_template_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(ChatTemplateError, match="is not valid"):
        ChatFormat(tiny(tmp_path, "{% for m in messages %}"))


def test_a_model_without_a_template_gets_questions_and_answers(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, None)
    chat = ChatFormat(tokenizer, "Sys")
    prompt = chat.render([user("One?"), {"role": "assistant", "content": "Yes."}, user("Two?<|stop|>")])
    assert shown(tokenizer, prompt) == "Sys\n\nQuestion: One?\nAnswer: Yes.\n\nQuestion: Two?<|stop|>\nAnswer:"
    assert special_positions(tokenizer, prompt) == []
    assert tuple(prompt.tokens[: prompt.prefix_tokens]) == chat.prefix
    assert shown(tokenizer, ChatFormat(tokenizer).render([user("One?")])) == "Question: One?\nAnswer:"


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([], "messages: empty"),
        ([{"role": "tool", "content": "x"}], r"messages\[0\].role: 'tool' is not known; allowed: system, user"),
        ([{"content": "x"}], r"messages\[0\].role: None"),
        ([{"role": "user", "content": "x"}, {"role": "user"}], r"messages\[1\].content: NoneType; allowed: text"),
        ([{"role": "user", "content": ["x"]}], r"messages\[0\].content: list; allowed: text"),
    ],
)
def test_bad_messages_are_named(tmp_path: Path, messages: list[dict[str, str]], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ChatFormat(tiny(tmp_path, CHATML)).render(messages)


@pytest.mark.model
@given(text=st.text(min_size=1, max_size=40), keep=st.integers(0, 40))
def test_cutting_takes_only_whole_characters_off_the_questions_end(tokenizer: Tokenizer, text: str, keep: int) -> None:
    chat = ChatFormat(tokenizer, "Sys")
    whole = chat.render([user(text)])
    start, end = whole.question
    cut = chat.cut(whole, min(keep, end - start))
    assert cut.tokens[:start] == whole.tokens[:start]
    assert cut.tokens[cut.question[1] :] == whole.tokens[end:]
    kept = tokenizer.decode(cut.tokens[start : cut.question[1]])
    assert tokenizer.decode(whole.tokens[start:end]).startswith(kept)
    assert cut.question[1] - start <= keep


@pytest.mark.model
def test_cutting_more_than_there_is_is_refused(tokenizer: Tokenizer) -> None:
    chat = ChatFormat(tokenizer)
    with pytest.raises(ValueError, match="keep: 5000 is out of range; allowed: 0 to"):
        chat.cut(chat.render([user("Hi")]), 5000)


@pytest.mark.model
def test_an_empty_question_has_no_tokens_of_its_own(tokenizer: Tokenizer) -> None:
    for text in ("", "  \n"):
        prompt = ChatFormat(tokenizer, "Sys").render([user(text)])
        assert prompt.question[0] == prompt.question[1]
