"""Streamed text: whole characters, nothing lost; and stop strings that neither show nor delay."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokens_samples import TEXTS, write_gguf

from kev.tokens.detokenizer import Detokenizer, StopMatcher
from kev.tokens.tokenizer import Tokenizer

EMOJI = "👨‍👩‍👧‍👦👍🏽🏴󠁧󠁢󠁥󠁮󠁧󠁿1️⃣ 你好 é مرحبا"


@pytest.fixture(scope="module")
def bytewise(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, dict[int, int]]:
    """A tokenizer with a token for every byte, and byte -> token."""
    tokenizer = Tokenizer.load(write_gguf(tmp_path_factory.mktemp("t") / "t.gguf"))
    table = {tokenizer.token_bytes(token)[0]: token for token in range(3, 259)}
    assert len(table) == 256
    return tokenizer, table


@given(content=st.one_of(st.binary(max_size=40), st.text(max_size=20).map(str.encode), st.just(EMOJI.encode())))
def test_pieces_make_the_whole_for_any_bytes(bytewise: tuple[Tokenizer, dict[int, int]], content: bytes) -> None:
    tokenizer, table = bytewise
    ids = [table[byte] for byte in content]
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.push(token) for token in ids]
    assert "".join(pieces) + detokenizer.flush() == tokenizer.decode(ids) == content.decode("utf-8", "replace")


@given(text=st.one_of(st.text(max_size=20), st.just(EMOJI)))
def test_valid_text_never_shows_half_a_character(bytewise: tuple[Tokenizer, dict[int, int]], text: str) -> None:
    tokenizer, table = bytewise
    detokenizer = Detokenizer(tokenizer)
    shown = ""
    for byte in text.encode():
        shown += detokenizer.push(table[byte])
        assert text.startswith(shown)
    assert shown == text
    assert detokenizer.flush() == ""


@pytest.mark.model
def test_real_tokens_stream_to_the_same_text(default_model: Path) -> None:
    tokenizer = Tokenizer.load(default_model)
    detokenizer = Detokenizer(tokenizer)
    for text in [*TEXTS, EMOJI]:
        streamed = [detokenizer.push(token) for token in tokenizer.encode_text(text)]
        assert "".join(streamed) + detokenizer.flush() == text
        assert "\ufffd" not in "".join(streamed) or "\ufffd" in text


def test_a_cut_off_character_is_shown_as_such_at_the_end(bytewise: tuple[Tokenizer, dict[int, int]]) -> None:
    tokenizer, table = bytewise
    detokenizer = Detokenizer(tokenizer)
    assert [detokenizer.push(table[byte]) for byte in "好".encode()[:2]] == ["", ""]
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.push(table[ord("a")]) == "a"


def test_special_tokens_add_no_text(bytewise: tuple[Tokenizer, dict[int, int]]) -> None:
    tokenizer, table = bytewise
    detokenizer = Detokenizer(tokenizer)
    first, last = "é".encode()
    assert detokenizer.push(table[first]) == ""
    assert detokenizer.push(tokenizer.special["<|stop|>"]) == ""
    assert detokenizer.push(table[last]) == "é"


STOPS = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=4), max_size=4).map(tuple)


def first_complete(text: str, stops: tuple[str, ...]) -> int | None:
    """Where the stop string begins that is complete first (the longest of several): by trying every end."""
    for end in range(len(text) + 1):
        begins = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if begins:
            return min(begins)
    return None


@given(pieces=st.lists(st.text(alphabet="ab\nc", max_size=5), max_size=12), stops=STOPS)
def test_text_up_to_the_first_stop_goes_out_however_it_is_cut(pieces: list[str], stops: tuple[str, ...]) -> None:
    matcher, out, stopped = StopMatcher(stops), "", False
    for piece in pieces:
        emitted, stopped = matcher.push(piece)
        out += emitted
    out += matcher.flush()
    text = "".join(pieces)
    begin = first_complete(text, stops)
    assert stopped == (begin is not None)
    assert out == text[:begin]


@given(text=st.text(alphabet="ab\nc", max_size=12), stops=STOPS)
def test_only_what_may_become_a_stop_string_is_held_back(text: str, stops: tuple[str, ...]) -> None:
    matcher, out = StopMatcher(stops), ""
    for index, char in enumerate(text):
        emitted, stopped = matcher.push(char)
        out += emitted
        if stopped:
            return
        held = text[len(out) : index + 1]
        assert not held or any(stop.startswith(held) for stop in stops)
        longer = text[len(out) - 1 : index + 1] if out else ""
        assert not longer or not any(stop != longer and stop.startswith(longer) for stop in stops)


def test_no_prefix_of_a_stop_string_leaks() -> None:
    matcher = StopMatcher(("\nUser:", "END"))
    assert matcher.push("Hello EN") == ("Hello ", False)
    assert matcher.push("ERGY\n") == ("ENERGY", False)
    assert matcher.push("User") == ("", False)
    assert matcher.push(": more") == ("", True)
    assert matcher.push("after") == ("", True)
    assert matcher.flush() == ""


def test_held_text_comes_at_the_end() -> None:
    matcher = StopMatcher(("END",))
    assert matcher.push("E") == ("", False)
    assert matcher.flush() == "E"


def test_without_stop_strings_nothing_is_held() -> None:
    assert StopMatcher(()).push("abc") == ("abc", False)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match=r"stop\[1\]: empty; allowed: a text of at least one character"):
        StopMatcher(("x", ""))
