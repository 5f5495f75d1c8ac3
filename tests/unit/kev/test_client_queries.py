"""What callers may write as queries, and what they are told when it is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from kev.client.queries import batch_of, questions_of
from kev.domain.errors import InvalidArgument
from kev.domain.question import Constraint, Isolation, Message, Priority, Question, ResultMode, Sampling


def test_strings_mappings_and_questions() -> None:
    own = Question(text="own", max_tokens=1)
    messages = [{"role": "user", "content": "hi"}]
    questions = questions_of(["a", {"text": "b", "id": 3}, {"messages": messages}, own])
    assert questions == (
        Question(text="a"),
        Question(text="b", id="3"),
        Question(messages=(Message("user", "hi"),)),
        own,
    )


@pytest.mark.parametrize("one", ["alone", {"text": "alone"}, Question(text="alone")])
def test_one_query_is_a_batch_of_one(one: Any) -> None:
    assert questions_of(one) == (Question(text="alone"),)


def test_limits_of_a_query_win_over_the_calls() -> None:
    mine = {
        "text": "x",
        "max_tokens": 5,
        "temperature": 1,
        "stop": ["a", "b"],
        "priority": "background",
        "truncate": False,
        "seed": None,
    }
    defaults: dict[str, Any] = {"max_tokens": 9, "timeout_ms": 7, "seed": 4, "stop": "z", "truncate": True, "top_k": 2}
    first, second = questions_of([mine, "y"], **defaults)
    assert first == Question(
        text="x",
        max_tokens=5,
        timeout_ms=7,
        priority=Priority.BACKGROUND,
        sampling=Sampling(temperature=1.0, top_k=2, seed=4, stop=("a", "b")),
    )
    assert (second.max_tokens, second.truncate, second.sampling.stop) == (9, True, ("z",))


def test_empty_text_goes_through_to_be_a_refused_slot() -> None:
    assert questions_of([""]) == (Question(),)


def test_half_a_surrogate_pair_becomes_a_replacement_and_a_whole_one_a_character() -> None:
    assert questions_of(["a\ud800b", "\ud83d\ude42"]) == (Question(text="a�b"), Question(text="🙂"))


@pytest.mark.parametrize(
    ("query", "field", "words"),
    [
        (5, "queries[0]", "string or an object"),
        ({}, "queries[0]", "neither"),
        ({"text": "a", "messages": []}, "queries[0]", "not both"),
        ({"text": 5}, "queries[0].text", "string"),
        ({"messages": []}, "queries[0].messages", "at least one"),
        ({"messages": "hi"}, "queries[0].messages", "list"),
        ({"messages": ["hi"]}, "queries[0].messages[0]", "role and content"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "queries[0].messages[0].role", "system, user, assistant"),
        ({"messages": [{"role": "user"}]}, "queries[0].messages[0].content", "string"),
        ({"text": "a", "id": [1]}, "queries[0].id", "string or a whole number"),
        ({"text": "a", "max_tokens": 0}, "queries[0].max_tokens", "from 1"),
        ({"text": "a", "max_tokens": True}, "queries[0].max_tokens", "whole number"),
        ({"text": "a", "max_tokens": 2**32}, "queries[0].max_tokens", "whole number"),
        ({"text": "a", "timeout_ms": "9"}, "queries[0].timeout_ms", "whole number"),
        ({"text": "a", "temperature": 2.1}, "queries[0].temperature", "0 to 2"),
        ({"text": "a", "temperature": float("nan")}, "queries[0].temperature", "0 to 2"),
        ({"text": "a", "top_p": 0}, "queries[0].top_p", "above 0"),
        ({"text": "a", "top_p": 1.5}, "queries[0].top_p", "above 0 and at most 1; got 1.5"),
        ({"text": "a", "top_p": float("nan")}, "queries[0].top_p", "above 0"),
        ({"text": "a", "repetition_penalty": -1}, "queries[0].repetition_penalty", "above 0 and at most 2; got -1"),
        ({"text": "a", "constraint": {"choices": []}}, "queries[0].constraint.choices", "1 to 1,000 strings"),
        ({"text": "a", "constraint": {"regex": ""}}, "queries[0].constraint.regex", "1 to 5,000 characters"),
        ({"text": "a", "constraint": {"json_schema": ""}}, "queries[0].constraint.json_schema", "a JSON object"),
        ({"text": "a", "top_k": -1}, "queries[0].top_k", "from 0"),
        ({"text": "a", "seed": -1}, "queries[0].seed", "from 0"),
        ({"text": "a", "stop": ["x"] * 9}, "queries[0].stop", "at most 8"),
        ({"text": "a", "stop": ""}, "queries[0].stop", "1 to 200"),
        ({"text": "a", "stop": [1]}, "queries[0].stop", "strings"),
        ({"text": "a", "priority": "high"}, "queries[0].priority", "express, normal, background"),
        ({"text": "a", "routing_key": 1}, "queries[0].routing_key", "string"),
        ({"text": "a", "truncate": "yes"}, "queries[0].truncate", "true or false"),
    ],
)
def test_errors_name_the_field_and_what_is_allowed(query: Any, field: str, words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        questions_of([query])
    assert caught.value.field == field
    assert words in caught.value.allowed


@pytest.mark.parametrize(
    ("question", "field"),
    [
        (Question(text=5), "queries[0].text"),  # type: ignore[arg-type]
        (Question(text="a", max_tokens=-1), "queries[0].max_tokens"),
        (Question(text="a", id=[1]), "queries[0].id"),  # type: ignore[arg-type]
        (Question(text="a", priority="soon"), "queries[0].priority"),  # type: ignore[arg-type]
        (Question(text="a", sampling=Sampling(seed=-1)), "queries[0].seed"),
        (Question(text="a", sampling=Sampling(temperature="hot")), "queries[0].temperature"),  # type: ignore[arg-type]
        (Question(messages=(Message("robot", "a"),)), "queries[0].messages[0].role"),
        (Question(messages=(Message("user", None),)), "queries[0].messages[0].content"),  # type: ignore[arg-type]
    ],
)
def test_a_question_object_is_checked_too(question: Question, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        questions_of([question])
    assert caught.value.field == field


def test_a_question_object_stays_as_it_is_but_for_halves_of_characters() -> None:
    sampling = Sampling(temperature=0.5, top_k=3, top_p=0.9, seed=2**64 - 1, stop=("a", "b"))
    full = Question(
        text="x",
        id="q",
        max_tokens=3,
        timeout_ms=5,
        routing_key="k",
        priority=Priority.EXPRESS,
        sampling=sampling,
        truncate=True,
    )
    assert questions_of([full, Question()], max_tokens=9) == (full, Question())
    halves = Question(messages=(Message("user", "a\ud800"),), id="\udc00", routing_key="\ud800")
    assert questions_of(halves) == (
        Question(messages=(Message("user", "a\ufffd"),), id="\ufffd", routing_key="\ufffd"),
    )


def test_a_bad_default_is_named_as_such() -> None:
    with pytest.raises(InvalidArgument) as caught:
        questions_of(["a"], max_tokens=-1)
    assert caught.value.field == "max_tokens"


def test_a_batch() -> None:
    batch = batch_of(["a"], isolation="shared", mode="seq_append", max_parallel=2, request_id="r-1", tenant="t")
    assert (batch.isolation, batch.mode, batch.max_parallel) == (Isolation.SHARED, ResultMode.SEQ_APPEND, 2)
    assert (batch.request_id, batch.tenant) == ("r-1", "t")
    assert batch_of("a").isolation is None
    assert (batch_of("a", strategy="length_aware").strategy, batch_of("a").strategy) == ("length_aware", None)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"queries": []}, "queries"),
        ({"queries": ["x"] * 1001}, "queries"),
        ({"queries": 5}, "queries"),
        ({"queries": "x", "isolation": "none"}, "isolation"),
        ({"queries": "x", "strategy": "none"}, "strategy"),
        ({"queries": "x", "mode": "any"}, "mode"),
        ({"queries": "x", "max_parallel": 0}, "max_parallel"),
        ({"queries": "x", "request_id": "a b"}, "request_id"),
        ({"queries": "x", "request_id": 5}, "request_id"),
        ({"queries": "x", "max_token": 5}, "max_token"),
    ],
)
def test_a_bad_batch_names_the_field(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        batch_of(**arguments)
    assert caught.value.field == field


def test_a_constraint_may_be_written_in_several_ways() -> None:
    schema = {"type": "object"}
    forms = [
        {"json_schema": schema},
        {"json_schema": '{"type":"object"}', "regex": None},
        Constraint(json_schema='{"type":"object"}'),
    ]
    questions = questions_of([{"text": "x", "constraint": form} for form in forms])
    assert {question.constraint for question in questions} == {Constraint(json_schema='{"type":"object"}')}
    own, common = questions_of([{"text": "x", "constraint": {"regex": "a"}}, "y"], constraint={"choices": ["b", "c"]})
    assert (own.constraint, common.constraint) == (Constraint(regex="a"), Constraint(choices=("b", "c")))


def test_what_changes_logits_is_part_of_the_sampling() -> None:
    given: dict[str, Any] = {
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "presence_penalty": -1,
        "frequency_penalty": 0.5,
        "logit_bias": {"12": 3, 13: -4.5},
        "logprobs": 2,
    }
    wanted = Sampling(
        min_p=0.1,
        repetition_penalty=1.2,
        presence_penalty=-1.0,
        frequency_penalty=0.5,
        logit_bias={12: 3.0, 13: -4.5},
        logprobs=2,
    )
    assert questions_of({"text": "x", **given})[0].sampling == wanted
    assert questions_of(Question(text="x", sampling=wanted))[0].sampling == wanted


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"min_p": -0.1}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"logit_bias": {"one": 1}}, "logit_bias"),
        ({"logit_bias": {1: 200}}, "logit_bias[1]"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"constraint": {}}, "constraint"),
        ({"constraint": "yes"}, "constraint"),
        ({"constraint": {"choices": ["a"], "regex": "b"}}, "constraint"),
        ({"constraint": {"choices": "ab"}}, "constraint.choices"),
        ({"constraint": {"choices": []}}, "constraint.choices"),
        ({"constraint": {"json_schema": {"a": {1, 2}, "b": object()}}}, "constraint.json_schema"),
        ({"constraint": {"json_schema": "{"}}, "constraint.json_schema"),
        ({"constraint": {"regex": "("}}, "constraint.regex"),
    ],
)
def test_what_is_wrong_with_them_is_told_by_field(limits: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        questions_of({"text": "x", **limits})
    assert caught.value.field == f"queries[0].{field}"
