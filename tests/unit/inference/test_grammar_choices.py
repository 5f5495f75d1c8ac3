"""Choices: what may follow is what keeps the text the beginning of a choice, over any vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_svc.grammars.choices import ChoiceList, Pieces
from inference_svc.grammars.port import GrammarFailed

TEXTS = st.text("ab é", min_size=1, max_size=6)
SPECIAL, END = 0, 1


class Words:
    """A tokenizer of given pieces, behind a special token and an end token."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [b"", b"", *pieces]
        self.vocab_size = len(self._pieces)
        self.eos_ids = frozenset({END})
        self.special_ids = frozenset({SPECIAL, END})

    def token_bytes(self, token: int) -> bytes:
        return self._pieces[token]


def _pieces(extra: list[str]) -> Pieces:
    single = [bytes([byte]) for byte in sorted(set("ab é".encode()))]
    return Pieces(Words([*single, *(text.encode() for text in extra)]))  # type: ignore[arg-type]


@given(st.lists(TEXTS, min_size=1, max_size=8), st.lists(TEXTS, max_size=8), st.data())
def test_every_walk_ends_in_a_choice_and_allows_what_the_definition_allows(
    choices: list[str], extra: list[str], data: st.DataObject
) -> None:
    pieces = _pieces(extra)
    listed, grammar, text = ChoiceList(pieces, choices), None, b""
    grammar = listed.begin()
    wanted = {choice.encode() for choice in choices}
    while True:
        allowed = grammar.allowed().tolist()
        defined = {
            token
            for token, piece in enumerate(pieces.of)
            if piece and any(choice.startswith(text + piece) for choice in wanted)
        }
        assert allowed == sorted(defined | ({END} if text in wanted else set()))
        token = data.draw(st.sampled_from(allowed))
        text += pieces.of[token]
        if grammar.take(token):
            break
    assert text in wanted


def test_a_token_that_is_not_allowed_fails_the_answer() -> None:
    grammar = ChoiceList(_pieces([]), ["ab"]).begin()
    with pytest.raises(GrammarFailed):
        grammar.take(END)


def test_what_the_vocabulary_cannot_write_fails_the_answer() -> None:
    with pytest.raises(GrammarFailed, match="vocabulary"):
        ChoiceList(_pieces([]), ["中"]).begin().allowed()


def test_answers_over_one_list_do_not_see_each_other() -> None:
    listed = ChoiceList(_pieces([]), ["ab", "ba"])
    first, second = listed.begin(), listed.begin()
    before = second.allowed()
    first.take(int(first.allowed()[0]))
    np.testing.assert_array_equal(second.allowed(), before)


def test_the_largest_list_is_ready_soon_and_keeps_a_bound() -> None:
    choices = [f"{'a' * 60}{number:040b}".replace("1", "b").replace("0", "é") for number in range(1000)]
    listed = ChoiceList(_pieces([]), choices)
    for choice in choices[:100]:
        grammar = listed.begin()
        for byte in choice.encode():
            grammar.take(next(t for t in grammar.allowed().tolist() if listed._pieces.of[t] == bytes([byte])))
    assert len(listed._known) <= 4096
