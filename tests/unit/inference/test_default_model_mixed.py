"""Many questions of mixed lengths on the real weights, channels recycled at once: each answers as it does alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from context_lab import Ask, World
from inference_fakes import HandClock, make_desk

from inference_svc.backends.load import load_backend
from inference_svc.backends.port import Backend
from inference_svc.verify.questions import PREFIX_TEXT, QUESTIONS
from kev.domain.question import Sampling
from kev.tokens.tokenizer import Tokenizer

pytestmark = [pytest.mark.model, pytest.mark.timeout(3000)]
SYSTEM, BATCH = 40, 50
LAYOUTS: list[dict[str, Any]] = [{}, {"copies": True}, {"copies": True, "unified": True}]


@pytest.fixture(scope="module")
def backend(default_model: Path) -> Iterator[Backend]:
    loaded = load_backend(default_model, pages=400)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def tokenizer(default_model: Path) -> Tokenizer:
    return Tokenizer.load(default_model)


def _asks(tokenizer: Tokenizer, count: int, longest: int) -> list[Ask]:
    """System prompt, a batch prefix and a question each; levels, lengths and temperatures drawn with a fixed seed."""
    draw = random.Random(count)
    begin = tokenizer.encode_text(PREFIX_TEXT)[: SYSTEM + BATCH]
    assert len(begin) == SYSTEM + BATCH
    return [
        Ask(
            prompt=(*begin, *tokenizer.encode_text(QUESTIONS[number % len(QUESTIONS)])),
            chain=(SYSTEM, 0, BATCH),
            level=draw.choice(["strict", "shared", "loose"]),
            tenant=draw.choice("ab"),
            max_tokens=draw.randint(1, longest),
            sampling=draw.choice([Sampling(), Sampling(0.8, top_p=0.9)]),
            group=number,
        )
        for number in range(count)
    ]


def _served(backend: Backend, tokenizer: Tokenizer, asks: list[Ask], seats: int, **layout: Any) -> list[Any]:
    clock = HandClock()
    desk, memory = make_desk(
        _Short(backend), channels=seats, rows=64, clock=clock, tokenizer=tokenizer, **({"prefixes": 99} | layout)
    )
    copies = layout.get("copies", False)
    world = World(desk, memory, clock, channels=seats, copies=copies, rows=64, seats_in_pack=seats)
    ends = world.run(asks, most=100_000)
    return [(ends[number].text, ends[number].tokens, ends[number].finish) for number in range(len(asks))]


@pytest.mark.parametrize(("count", "longest"), [(10, 12), pytest.param(100, 200, marks=pytest.mark.slow)])
def test_each_answers_as_it_does_alone(backend: Backend, tokenizer: Tokenizer, count: int, longest: int) -> None:
    asks = _asks(tokenizer, count, longest)
    alone = _served(backend, tokenizer, asks, 1, share_prefix=False, prefixes=0)
    for layout in LAYOUTS if count < 100 else LAYOUTS[:1]:
        assert _served(backend, tokenizer, asks, 8, **layout) == alone


class _Short:
    """A backend with channels of 320 positions."""

    max_context = 320

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)
