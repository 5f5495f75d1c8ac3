"""The form of constraints: what is refused before it costs a queue place, and what is not."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kev.domain.constraint import mistake_in
from kev.domain.question import Constraint


@pytest.mark.parametrize(
    ("constraint", "told"),
    [
        (Constraint(), "got none"),
        (Constraint(choices=("a",), regex="b"), "got choices and regex"),
        (Constraint(choices=("a", "")), "choices: each must have 1 to 1,000 characters; number 2 has 0"),
        (Constraint(choices=("a" * 1001,)), "choices: each must have 1 to 1,000"),
        (Constraint(choices=("a",) * 1001), "choices: must be 1 to 1,000 strings, got 1,001"),
        (Constraint(choices=tuple("b" * 997 + str(n) for n in range(100, 201))), "at most 100,000 characters together"),
        (Constraint(json_schema="{"), "json_schema: must be JSON"),
        (Constraint(json_schema="[]"), "json_schema: must be a JSON object"),
        (Constraint(json_schema="true"), "json_schema: must be a JSON object"),
        (Constraint(json_schema='{"a":"' + "x" * 50_000 + '"}'), "json_schema: must have at most 50,000"),
        (Constraint(json_schema='{"a":' * 101 + "{}" + "}" * 101), "json_schema: must be nested at most 100 deep"),
        (Constraint(json_schema='{"a":' + "[" * 20_000 + "]" * 20_000 + "}"), "json_schema: must be nested"),
        (Constraint(regex="x" * 5001), "regex: must have at most 5,000"),
        (Constraint(regex="(a"), "regex: a ( is not closed"),
        (Constraint(regex="a)("), "regex: a ) closes nothing"),
        (Constraint(regex="[a"), "regex: a [ is not closed"),
        (Constraint(regex="[]"), "regex: a [ is not closed"),
        (Constraint(regex="a\\"), "regex: ends with a lone backslash"),
        (Constraint(regex=r"(a)\1"), "regex: references back"),
        (Constraint(regex="(?P=name)"), "regex: references back"),
        (Constraint(regex="(?=a)b"), "regex: look-ahead"),
        (Constraint(regex="(?<!a)b"), "regex: look-ahead"),
        (Constraint(regex="a{3,1}"), "regex: {3,1} must count upwards"),
        (Constraint(regex="(" * 101 + "a" + ")" * 101), "regex: groups must be nested at most 100 deep"),
        (Constraint(regex="a\0"), "regex: must not hold NUL"),
    ],
)
def test_a_mistake_names_the_form_and_what_is_allowed(constraint: Constraint, told: str) -> None:
    assert told in (mistake_in(constraint) or "")


@pytest.mark.parametrize(
    "regex",
    [
        r"\(",
        r"\\(a)",
        "[(]",
        "[]a]",
        "[^]]+",
        r"[\]]",
        "[[:alpha:]--[aeiou]]{2,}",
        "(?i:a)(?P<year>[0-9]{4})",
        r"\p{L}{1,3}",
        r"\x{41}",
        "a{,3}",
        "{",
        "(?:a|b)*",
        r"\\\\",
        r"\[1",
    ],
)
def test_a_good_expression_passes(regex: str) -> None:
    assert mistake_in(Constraint(regex=regex)) is None


@given(st.text(min_size=1, max_size=20))
def test_an_escaped_text_is_always_a_good_expression(text: str) -> None:
    assert mistake_in(Constraint(regex=re.escape(text.replace("\0", "")) or "a")) is None


@given(st.dictionaries(st.text(), st.one_of(st.integers(), st.text(), st.lists(st.integers()))))
def test_a_small_object_is_a_schema_by_its_form(schema: dict[str, object]) -> None:
    assert mistake_in(Constraint(json_schema=json.dumps(schema))) is None
