"""Whatever a caller's program hands over, the answer is an error that names the field, and never a long one."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest

from kev.client import arguments
from kev.client.fields import CHECKS
from kev.client.queries import batch_of
from kev.domain.constraint import mistake_in
from kev.domain.errors import InvalidArgument
from kev.domain.question import Constraint, Message, Question, Sampling

HUGE = 10**5000
MOST_CHARS = 400


class Unshown:
    def __repr__(self) -> str:
        raise RuntimeError("has no text")


def nested() -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(100_000):
        made = {"a": made}
    return made


ODD: dict[str, Any] = {
    "huge": HUGE,
    "unshown": Unshown(),
    "huge inside": [HUGE],
    "huge key": {HUGE: 1},
    "unshown key": {Unshown(): 1},
    "unshown inside": {"a": Unshown()},
    "array": np.array([1, 2]),
    "nested": nested(),
    "long": ["x" * 100_000],
}
PLACES: dict[str, Any] = {
    **{name: lambda odd, name=name: {"text": "a", name: odd} for name in CHECKS if name != "truncate"},
    "truncate": lambda odd: {"text": "a", "truncate": odd},
    "text": lambda odd: {"text": odd},
    "messages": lambda odd: {"messages": odd},
    "message": lambda odd: {"messages": [odd]},
    "role": lambda odd: {"messages": [{"role": odd, "content": "a"}]},
    "content": lambda odd: {"messages": [{"role": "user", "content": odd}]},
    "id": lambda odd: {"text": "a", "id": odd},
    "schema": lambda odd: {"text": "a", "constraint": {"json_schema": odd if not isinstance(odd, dict) else [odd]}},
    "question text": lambda odd: Question(text=odd),
    "question messages": lambda odd: Question(messages=odd),
    "question sampling": lambda odd: Question(text="a", sampling=odd),
    "question stop": lambda odd: Question(text="a", sampling=Sampling(stop=odd)),
    "question choices": lambda odd: Question(text="a", constraint=Constraint(choices=odd)),
    "question priority": lambda odd: Question(text="a", priority=odd),
    "message role": lambda odd: Question(messages=(Message(odd, "a"),)),
    "query": lambda odd: odd,
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("place", PLACES)
def test_an_odd_value_is_an_error_that_names_its_field(place: str, odd: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        batch_of([PLACES[place](ODD[odd])])
    assert caught.value.field.startswith("queries[0]")
    assert len(str(caught.value)) < MOST_CHARS


@pytest.mark.parametrize("key", [HUGE, Unshown(), "x" * 100_000], ids=["huge", "unshown", "long"])
def test_an_unknown_key_is_named_shortly(key: Any) -> None:
    with pytest.raises(InvalidArgument, match="unknown key; allowed: text"):
        batch_of([{"text": "a", key: 1}])


def test_a_key_that_a_message_does_not_have_is_not_passed_over() -> None:
    with pytest.raises(InvalidArgument, match=r"messages\[0\].name: unknown key; allowed: role, content"):
        batch_of([{"messages": [{"role": "user", "content": "a", "name": "b"}]}])


def test_a_token_is_biased_once() -> None:
    with pytest.raises(InvalidArgument, match=r"logit_bias: must name each token once; 1 is there twice"):
        batch_of([{"text": "a", "logit_bias": {"1": 5, "01": -5}}])


@pytest.mark.parametrize("number", [nan, inf, -inf])
def test_a_schema_holds_no_number_that_json_lacks(number: float) -> None:
    with pytest.raises(InvalidArgument, match=r"constraint.json_schema: must be JSON"):
        batch_of([{"text": "a", "constraint": {"json_schema": {"maximum": number}}}])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_nor_does_its_text(number: str) -> None:
    told = mistake_in(Constraint(json_schema=f'{{"maximum": {number}}}'))
    assert told is not None
    assert told.startswith(f"json_schema: must be JSON; it has no {number}")


def test_a_schema_keeps_its_large_numbers_and_its_letters() -> None:
    batch = batch_of([{"text": "a", "constraint": {"json_schema": {"maximum": 10**30, "title": "é\ud800"}}}])
    assert batch.questions[0].constraint == Constraint(json_schema='{"maximum":' + str(10**30) + ',"title":"é\ufffd"}')


def test_a_timeout_beyond_all_floats_is_no_limit() -> None:
    assert arguments.seconds(HUGE) is None
    assert arguments.seconds(-HUGE) == 0
