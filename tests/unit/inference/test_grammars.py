"""Schemas and expressions: compiled where they can do no harm, hostile ones refused, answers each on their own."""

from __future__ import annotations

import asyncio
import builtins
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference_svc.grammars import compiler, trial_child
from inference_svc.grammars.compiler import Grammars, Kept
from inference_svc.grammars.library import MISSING, Vocabulary, Words
from inference_svc.grammars.port import Grammar, GrammarFailed, Unusable
from kev.domain.constraint import mistake_in
from kev.domain.question import Constraint
from kev.tokens.tokenizer import Tokenizer

pytestmark = [pytest.mark.model, pytest.mark.timeout(180)]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "kind": {"enum": ["cat", "dog"]}},
    "required": ["name", "kind"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def tokenizer(default_model: Path) -> Tokenizer:
    return Tokenizer.load(default_model)


@pytest.fixture(scope="module")
def words(tokenizer: Tokenizer) -> Words:
    return Words.of(tokenizer)


@pytest.fixture(scope="module")
def vocabulary(words: Words, tokenizer: Tokenizer) -> Vocabulary:
    return Vocabulary(words, lambda text: tokenizer.encode_text(text, at_start=False))


@pytest.fixture
async def grammars(tokenizer: Tokenizer) -> AsyncIterator[Grammars]:
    made = Grammars(tokenizer, 2.0)
    yield made
    made.close()


def schema(value: Any) -> Constraint:
    return Constraint(json_schema=value if isinstance(value, str) else json.dumps(value))


def walk(grammar: Grammar, tokenizer: Tokenizer, seed: int, most: int = 200) -> str | None:
    """A text that the grammar allows, drawn at random; None if it has no end within ``most`` tokens."""
    draw = np.random.default_rng(seed)
    tokens: list[int] = []
    while len(tokens) < most:
        tokens.append(int(draw.choice(grammar.allowed())))
        if grammar.take(tokens[-1]):
            return tokenizer.decode(tokens)
    return None


def chain(links: int) -> Constraint:
    """A schema whose references lead from one to the next: the library follows them on its stack."""
    steps: dict[str, Any] = {str(n): {"items": {"$ref": f"#/$defs/{n + 1}"}} for n in range(links)}
    whole = {"$defs": {**steps, str(links): {}}, "$ref": "#/$defs/0"}
    return schema(json.dumps(whole, separators=(",", ":")))


def test_random_walks_obey_a_schema(vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
    for seed in range(20):
        text = walk(vocabulary.compiled(schema(SCHEMA)), tokenizer, seed)
        assert text is not None
        found = json.loads(text)
        assert set(found) == {"name", "kind"}
        assert found["kind"] in ("cat", "dog")
        assert len(found["name"]) <= 12


@pytest.mark.parametrize("expression", ["[a-c]{3}-[0-9]{2,4}", "(yes|no)( please)?", "(?i:ja)!", r"a/b\n\x41", "[]x]"])
def test_random_walks_match_an_expression_as_a_whole(
    vocabulary: Vocabulary, tokenizer: Tokenizer, expression: str
) -> None:
    assert mistake_in(Constraint(regex=expression)) is None
    for seed in range(8):
        text = walk(vocabulary.compiled(Constraint(regex=expression)), tokenizer, seed)
        assert text is not None
        assert re.fullmatch(expression, text)


def test_no_walk_uses_a_special_token(vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
    allowed = vocabulary.compiled(Constraint(regex="(?s:.*)")).allowed()
    assert tokenizer.special_ids & set(allowed.tolist()) == tokenizer.eos_ids


def test_answers_do_not_depend_on_each_other(vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
    alone = [walk(vocabulary.compiled(schema(SCHEMA)), tokenizer, seed) for seed in range(4)]
    together = [vocabulary.compiled(schema(SCHEMA)) for _ in range(4)]
    assert [walk(one, tokenizer, seed) for seed, one in enumerate(together)] == alone


def test_the_wrong_token_fails_the_answer(vocabulary: Vocabulary) -> None:
    grammar = vocabulary.compiled(Constraint(regex="ab"))
    wrong = next(token for token in range(1000) if token not in set(grammar.allowed().tolist()))
    with pytest.raises(GrammarFailed):
        grammar.take(wrong)


HOSTILE = {
    "chain": (chain(1200), "nested too deeply"),
    "product": (
        schema(
            {"allOf": [{"anyOf": [{"properties": {f"a{i}_{j}": {}}} for j in range(10)]} for i in range(8)]},
        ),
        "too large",
    ),
    "dots": (Constraint(regex=".*" * 500), "fuel"),
    "impossible": (Constraint(regex=r"[^\s\S]"), "no text satisfies it"),
    "loop": (schema({"$ref": "#"}), "no text satisfies it"),
    "unknown": (schema({"not": {}}), "not"),
    "remote": (schema({"$ref": "http://127.0.0.1:9/x.json"}), "not fetch|registry"),
    "file": (schema({"$ref": "file:///etc/passwd"}), "not fetch|registry"),
    "expression": (Constraint(regex="a{3"), "regex"),
}


async def test_hostile_constraints_are_refused_and_a_good_one_in_between_is_served(
    grammars: Grammars, tokenizer: Tokenizer
) -> None:
    names = list(HOSTILE)
    assert mistake_in(HOSTILE["chain"][0]) is None, "the router lets it through"
    tries = [grammars.begin(HOSTILE[name][0]) for name in names]
    found = await asyncio.gather(grammars.begin(schema(SCHEMA)), *tries, return_exceptions=True)
    assert walk(found[0], tokenizer, 1) is not None  # type: ignore[arg-type]
    for name, refusal in zip(names, found[1:], strict=True):
        assert isinstance(refusal, Unusable), name
        assert re.search(HOSTILE[name][1], str(refusal)), (name, str(refusal))
        assert refusal.reason in ("invalid", "too_complex")


async def test_a_constraint_is_tried_once_and_its_verdict_kept(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Constraint] = []
    monkeypatch.setattr(grammars, "_check", lambda one: tried.append(one))
    await asyncio.gather(*(grammars.begin(schema(SCHEMA)) for _ in range(5)))
    await grammars.begin(schema(SCHEMA))
    assert len(tried) == 1


async def test_one_that_takes_too_long_is_given_up(tokenizer: Tokenizer) -> None:
    grammars = Grammars(tokenizer, 0.05)
    try:
        with pytest.raises(Unusable, match=r"more than 0\.05 s") as caught:
            await grammars.begin(schema({"type": "integer", "multipleOf": 99991}))
        assert caught.value.reason == "too_complex"
        assert await grammars.begin(Constraint(regex="ab"))
    finally:
        grammars.close()


async def test_without_the_library_choices_are_served_and_the_rest_is_not(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def lacking(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "llguidance":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", lacking)
    grammars = Grammars(tokenizer, 2.0)
    try:
        with pytest.raises(Unusable) as caught:
            await grammars.begin(Constraint(regex="ab"))
        assert (caught.value.reason, str(caught.value)) == ("not_served", MISSING)
        assert len((await grammars.begin(Constraint(choices=("yes", "no")))).allowed())
    finally:
        grammars.close()


def test_a_trial_finds_what_only_following_it_shows(words: Words) -> None:
    verdict = trial_child.tried(Vocabulary(words), Constraint(regex="(?i)" + "[a-z]{1,100}" * 40))
    assert verdict.reason in ("", "too_complex")
    assert trial_child.tried(Vocabulary(words), Constraint(regex="ab")) == trial_child.Verdict()


def test_what_is_kept_is_bounded() -> None:
    kept: Kept[int] = Kept(2)
    for number in range(3):
        kept.put(bytes([number]), number)
        kept.get(b"\0")
    assert (len(kept), b"\0" in kept, b"\1" in kept) == (2, True, False)
    assert compiler.MOST_LISTS <= 64
