"""Texts put together from frames, and text made safe for a terminal."""

from __future__ import annotations

from kev.app.cli.answers import Answers, ending
from kev.app.cli.plain import plain
from kev.domain.result import Frame, SlotResult


def test_pieces_make_a_text_and_a_reset_starts_it_again() -> None:
    answers = Answers()
    answers.take(Frame("r", 0, text="Hel"))
    answers.take(Frame("r", 0, text_offset=3, text="lo"))
    assert answers.streamed(0) == "Hello"
    answers.take(Frame("r", 0, attempt=2, text="By", reset=True))
    answers.take(Frame("r", 0, attempt=2, text_offset=2, text="e", result=SlotResult("r", 0, status="answered")))
    assert answers.streamed(0) == "Bye"
    assert answers.complete
    answers.take(Frame("r", 1, text="?"))
    assert not answers.complete


def test_a_piece_that_comes_twice_is_not_doubled() -> None:
    answers = Answers()
    for offset, text in ((0, "Hello"), (3, "lo"), (5, "!")):
        answers.take(Frame("r", 0, text_offset=offset, text=text))
    assert answers.streamed(0) == "Hello!"


def test_an_ending_says_why() -> None:
    assert ending(SlotResult("r", 0, status="answered")) == ""
    assert ending(SlotResult("r", 0, status="answered", warnings=("length_warning: cut",))) == "length_warning: cut"
    assert ending(SlotResult("r", 0, status="timed_out")) == "timed out"
    assert ending(SlotResult("r", 0, status="refused", reason="empty", detail="no text")) == "refused: empty: no text"


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert (
        plain("a\x1b[31mb\x07\x9b\r\nc\td\x7f\u2028")
        == "a\N{REPLACEMENT CHARACTER}[31mb"
        + ("\N{REPLACEMENT CHARACTER}" * 2)
        + "\nc\td\N{REPLACEMENT CHARACTER}\u2028"
    )
