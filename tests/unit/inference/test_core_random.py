"""Random arrivals, lengths, priorities, cancels, deadlines, levels, layouts and context chains.

Every slot equals its naive answer, no page is ever lost, and no page is read by whom it is not for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from context_lab import Ask, Logits, World, compare, naive_answer
from hypothesis import given, settings
from hypothesis import strategies as st
from inference_fakes import FakeBackend, HandClock, logits_of, make_desk

from inference_svc.backends.reference import ReferenceBackend
from inference_svc.rows import Pack, Span, pages_for
from kev.domain.question import Sampling

CONTEXT = 128
SYSTEM = [(5 * n) % 40 + 8 for n in range(40)]
POOLS = [[(7 * n + pool) % 40 + 8 for n in range(60)] for pool in range(2)]
PREFIXES = [[(11 * n + 3 * batch) % 40 + 8 for n in range(40)] for batch in range(2)]
LENGTHS = st.sampled_from([0, 0, 1, 15, 16, 17, 33])
PAGES = st.sampled_from([9, 11, 16, 24, 60])
TURNS = st.sampled_from([1, 2, 2, 4])
LAYOUTS: dict[str, dict[str, Any]] = {
    "split": {"copies": True},
    "unified": {"copies": True, "unified": True},
    "shared_readonly": {},
}


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    chain = (draw(LENGTHS), draw(LENGTHS), draw(LENGTHS))
    pool, batch = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    turn = draw(st.sampled_from([0, 0, 20, 40]))
    own = draw(st.lists(st.integers(8, 47), min_size=1, max_size=12))
    begin = (*SYSTEM[: chain[0]], *POOLS[pool][: chain[1]], *PREFIXES[batch][: chain[2]])
    return Ask(
        prompt=(*begin, *([9] * turn), *own)[: CONTEXT - 1],
        chain=chain,
        level=draw(st.sampled_from(["strict", "shared", "loose", "loose"])),
        tenant=draw(st.sampled_from(["a", "a", "b"])),
        max_tokens=draw(st.integers(1, 24)),
        sampling=draw(st.sampled_from([Sampling(), Sampling(0.9), Sampling(1.5, 6), Sampling(1.0, 0, 0.8)])),
        at=draw(st.integers(0, 12)),
        priority=draw(st.integers(0, 2)),
        group=draw(st.integers(0, 2)),
        max_parallel=draw(st.sampled_from([1, 2, 9])),
        alone=draw(st.sampled_from([False, False, False, True])),
        cancel_after=draw(st.sampled_from([None, None, None, 1, 4])),
        expire_after=draw(st.sampled_from([None, None, None, 2, 5])),
    )


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, Any]:
    more = {"share_prefix": draw(st.booleans()), "prefixes": draw(st.sampled_from([1, 3, 100]))}
    more["context_pages"] = draw(st.sampled_from([0, 0, 6]))
    return LAYOUTS[draw(st.sampled_from(list(LAYOUTS)))] | more


def _all_equal(questions: list[Ask], backend: Any, layout: dict[str, Any], logits: Logits, turns: int) -> None:
    """Runs them, and what each conversation says in its next turns."""
    clock = HandClock()
    desk, memory = make_desk(backend, channels=4, rows=24, clock=clock, **layout)
    world = World(desk, memory, clock, copies=layout.get("copies", False))
    for turn in range(turns):
        first = len(world.ends)
        ends = world.run(questions)
        naive = [naive_answer(ask, first + number, logits, CONTEXT) for number, ask in enumerate(questions)]
        for number, answer in enumerate(naive):
            compare(ends[number], world.texts[first + number], answer)
        after = zip(questions, naive, strict=True)
        questions = [_next_turn(ask, answer, turn + n, world.number) for n, (ask, answer) in enumerate(after)]
    assert desk.idle
    while memory._shelf.evict(None):
        pass
    assert memory.available == backend.pages, "somebody still holds a page"


def _next_turn(ask: Ask, answer: list[int], number: int, now: int) -> Ask:
    """It goes on where it stood; some declare their context otherwise, or forget to."""
    system, pool, batch = ask.chain
    chain = [ask.chain, (system, 0, pool + batch), (system, pool, 0), (system, pool + batch, 0)][number % 4]
    prompt = (*ask.prompt, *answer, *([8, 9] * (1 + number % 5 * 4)))[: CONTEXT - 2]
    return Ask(
        prompt,
        chain,
        ask.level,
        ask.tenant,
        max_tokens=(4, 17, 1)[number % 3],
        sampling=ask.sampling,
        at=now + number % 7,
        priority=ask.priority,
        alone=number % 6 == 0,
    )


@settings(max_examples=80, deadline=None)
@given(st.lists(asks(), min_size=1, max_size=12), PAGES, layouts(), TURNS)
def test_every_slot_equals_its_naive_answer(
    questions: list[Ask], pages: int, layout: dict[str, Any], turns: int
) -> None:
    _all_equal(questions, FakeBackend(pages=pages), layout, logits_of, turns)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=4000, deadline=None)
@given(st.lists(asks(), min_size=1, max_size=12), PAGES, layouts(), TURNS)
def test_every_slot_equals_its_naive_answer_at_length(
    questions: list[Ask], pages: int, layout: dict[str, Any], turns: int
) -> None:
    _all_equal(questions, FakeBackend(pages=pages), layout, logits_of, turns)


@pytest.fixture(scope="module")
def tiny(save_tiny: Callable[..., Path]) -> tuple[ReferenceBackend, Logits]:
    """A random model, and its logits after a text, all of it computed anew."""
    folder = save_tiny("llama", vocab_size=48, num_hidden_layers=1)
    backend = ReferenceBackend.load(folder, pages=48)
    other = ReferenceBackend.load(folder, pages=pages_for(CONTEXT))
    table = np.arange(other.pages, dtype=np.int32)

    @lru_cache(None)
    def logits(context: tuple[int, ...]) -> Any:
        return other.forward(Pack.of([Span(0, np.array(context, np.int32), 0, table)]))[0]

    return backend, logits


@pytest.mark.timeout(300)
def test_a_random_model_answers_as_it_does_naively(tiny: tuple[ReferenceBackend, Logits]) -> None:
    backend, logits = tiny
    backend_of_context = _Bounded(backend)

    @settings(max_examples=25, deadline=None)
    @given(st.lists(asks(), min_size=2, max_size=6), layouts(), TURNS)
    def check(questions: list[Ask], layout: dict[str, Any], turns: int) -> None:
        _all_equal(questions, backend_of_context, layout, logits, turns)

    check()


class _Bounded:
    """A backend with the channels of this test: ``CONTEXT`` positions."""

    max_context = CONTEXT

    def __init__(self, backend: ReferenceBackend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)
