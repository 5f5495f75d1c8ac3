"""A question that fits gets its room; one that does not is refused with the counts, or cut if it asked for that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router_svc.budget import Budget, Refusal, Refused, plan


def planned(prompt: int, question: int = 10, **values: object) -> Budget | Refusal:
    limits: dict[str, object] = {"requested": None, "default_max_tokens": 64, "max_context": 1000, **values}
    return plan(prompt_tokens=prompt, question_tokens=question, **limits)  # type: ignore[arg-type]


def test_the_default_is_used_when_nothing_is_asked_for() -> None:
    assert planned(100) == Budget(100, 64)
    assert planned(100, requested=7) == Budget(100, 7)


def test_the_default_shrinks_to_the_room_without_a_word() -> None:
    assert planned(990) == Budget(990, 10)


def test_more_than_the_room_is_lowered_and_told() -> None:
    found = planned(100, requested=2000)
    assert isinstance(found, Budget)
    assert (found.max_tokens, found.keep_question) == (900, None)
    assert found.warnings == ("max_tokens_lowered: 2000 wanted, room for 900 behind 100 prompt tokens",)


def test_an_empty_question_is_refused() -> None:
    found = planned(20, 0, has_content=False)
    assert isinstance(found, Refusal)
    assert found.reason is Refused.EMPTY
    assert found.text == "the question is empty"


def test_a_long_prompt_is_refused_with_the_counts() -> None:
    assert planned(20_000, 19_900, requested=50) == Refusal(
        Refused.TOO_LONG,
        prompt_tokens=20_000,
        max_tokens=50,
        allowed=999,
        text="the prompt has 20000 tokens; allowed: 999, "
        "as max_context is 1000 and the answer needs at least 1 (max_tokens: 50)",
    )


def test_one_token_of_answer_is_enough_room() -> None:
    assert planned(999) == Budget(999, 1)
    assert isinstance(planned(1000), Refusal)


def test_cutting_happens_only_when_asked_for_and_is_told() -> None:
    found = planned(20_000, 19_900, truncate=True)
    assert isinstance(found, Budget)
    assert (found.prompt_tokens, found.max_tokens, found.keep_question) == (936, 64, 836)
    assert found.warnings == (
        "length_warning: the question was cut from 19900 to at most 836 tokens, "
        "the prompt from 20000 to at most 936 of 1000",
    )
    assert planned(100, truncate=True) == Budget(100, 64)


def test_a_long_answer_leaves_the_question_half_of_the_room() -> None:
    found = planned(20_000, 19_900, truncate=True, requested=5000)
    assert isinstance(found, Budget)
    assert (found.keep_question, found.max_tokens) == (450, 450)


def test_what_is_not_the_question_is_never_cut() -> None:
    found = planned(20_000, 100, truncate=True)
    assert isinstance(found, Refusal)
    assert found.reason is Refused.TOO_LONG


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"requested": 0}, "max_tokens: 0 is out of range; allowed: 1 or more"),
        ({"max_context": 1}, "max_context: 1 is"),
    ],
)
def test_limits_out_of_range_are_named(values: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        planned(10, **values)


@given(
    question=st.integers(0, 5000),
    around=st.integers(0, 3000),
    requested=st.one_of(st.none(), st.integers(1, 5000)),
    max_context=st.integers(2, 4096),
    truncate=st.booleans(),
)
def test_what_is_granted_always_fits(
    question: int, around: int, requested: int | None, max_context: int, truncate: bool
) -> None:
    found = plan(
        prompt_tokens=question + around,
        question_tokens=question,
        requested=requested,
        default_max_tokens=128,
        max_context=max_context,
        truncate=truncate,
    )
    if isinstance(found, Refusal):
        assert question + around + 1 > max_context
        assert not truncate or around + 2 > max_context
        return
    assert 1 <= found.max_tokens <= (requested or 128)
    assert found.prompt_tokens + found.max_tokens <= max_context
    kept = question if found.keep_question is None else found.keep_question
    assert found.prompt_tokens == around + kept
    assert found.keep_question is None or (truncate and kept < question and found.warnings)
