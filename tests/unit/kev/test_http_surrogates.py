"""Halves of characters in a JSON body."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kev.app.http.surrogates import MOST, whole_characters

ANY = st.text(st.one_of(st.characters(), st.integers(0xD7F0, 0xE00F).map(chr), st.sampled_from('\\"u')))


def as_other_doors(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@given(ANY)
def test_a_half_becomes_one_unknown_character_and_nothing_else_changes(text: str) -> None:
    body = json.dumps({text: [text]}).encode()
    whole = as_other_doors(text)
    assert json.loads(whole_characters(body)) == {whole: [whole]}


@pytest.mark.parametrize(
    "body", [rb'"\ud83d\ude00"', rb'"\uD83D\uDE00"', rb'"\\ud83d"', rb'"\\\\ud83d"', '"😀"'.encode(), b"not JSON \\"]
)
def test_what_is_whole_stays_as_it_is(body: bytes) -> None:
    assert whole_characters(body) == body


def test_a_body_of_nothing_else_is_read_to_a_bound() -> None:
    body = rb"\ud83d" * (MOST + 3)
    assert whole_characters(body) == rb"\ufffd" * MOST + rb"\ud83d" * 3
