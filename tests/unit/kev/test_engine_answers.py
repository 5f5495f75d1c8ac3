"""Constraints, seeds and log probabilities on the real model: each slot obeys its own, packed and alone the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kev.app.engine import Engine
from kev.domain.result import SlotResult

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CHAIN = json.dumps(
    {
        "$defs": {**{str(n): {"items": {"$ref": f"#/$defs/{n + 1}"}} for n in range(1200)}, "1200": {}},
        "$ref": "#/$defs/0",
    },
    separators=(",", ":"),
)
QUESTIONS: list[dict[str, Any]] = [
    {"text": "Anna is 31 years old. Describe her as JSON.", "constraint": {"json_schema": SCHEMA}, "logprobs": 1},
    {"text": "Is Paris in France?", "constraint": {"choices": ["yes", "no"]}, "logprobs": 3},
    {"text": "What is the capital of France?", "max_tokens": 9, "logprobs": 0},
    {
        "text": "A code, please.",
        "constraint": {"regex": "[A-Z]{2}-[0-9]{3}"},
        "temperature": 1.2,
        "seed": 5,
        "logprobs": 2,
    },
    {"text": "Say something.", "temperature": 1.0, "min_p": 0.05, "frequency_penalty": 0.6, "max_tokens": 8, "seed": 6},
    {"text": "Hostile.", "constraint": {"json_schema": CHAIN}},
    {"text": "Exploding.", "constraint": {"regex": ".*" * 500}},
    {"text": "Cut short.", "constraint": {"json_schema": SCHEMA}, "max_tokens": 3},
]


@pytest.fixture(scope="module")
def engine(default_model: Path) -> Iterator[Engine]:
    flags = {"router.channel_pool_size": 8, "core.max_context": 256, "core.precision": "bf16"}
    with Engine.from_config(flags=flags) as made:
        yield made


def _asked(engine: Engine, questions: list[dict[str, Any]]) -> list[SlotResult]:
    return engine.wait(engine.submit(questions, timeout_ms=120_000), timeout=150)


def _told(result: SlotResult) -> tuple[object, ...]:
    return (result.status, result.finish_reason, result.reason, result.text, result.logprobs)


def test_each_slot_of_a_pack_obeys_its_own_constraint_as_it_does_alone(engine: Engine) -> None:
    packed = _asked(engine, QUESTIONS)
    person = json.loads(packed[0].text)
    assert set(person) == {"name", "age"}
    assert packed[1].text in ("yes", "no")
    assert re.fullmatch("[A-Z]{2}-[0-9]{3}", packed[3].text)
    assert [result.status for result in packed] == ["answered"] * 5 + ["refused"] * 2 + ["answered"]
    assert [(result.reason, bool(result.detail)) for result in packed[5:7]] == [("too_complex", True)] * 2
    assert (packed[7].finish_reason, len(packed[7].text) > 0) == ("length", True)
    for result in packed[:4]:
        assert len(result.logprobs) == result.tokens
        assert b"".join(one.chosen.text for one in result.logprobs).decode() == result.text
    for slot, question in enumerate(QUESTIONS):
        assert _told(_asked(engine, [question])[0]) == _told(packed[slot])
