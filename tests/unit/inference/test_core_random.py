"""Random arrivals, cancels and deadlines: every slot equals a naive answer, and no page is ever lost."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from inference_fakes import EOS, FakeBackend, HandClock, letters, make_desk, naive_tokens

from inference_svc.channels import Job
from inference_svc.desk import Desk
from inference_svc.memory import Memory
from inference_svc.report import End, Order
from kev.domain.outcome import FinishReason
from kev.domain.question import Sampling

CHANNELS = 6
PREFIX = [(5 * n) % 40 + 8 for n in range(40)]


@dataclass(frozen=True)
class Ask:
    """One question, and what happens to it."""

    at: int
    prompt: tuple[int, ...]
    prefix: int
    max_tokens: int
    sampling: Sampling
    group: int
    max_parallel: int
    alone: bool
    cancel_after: int | None
    expire_after: int | None


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    prefix = draw(st.sampled_from([0, 0, 1, 15, 16, 17, 33]))
    own = draw(st.lists(st.integers(8, 47), min_size=1, max_size=20))
    return Ask(
        at=draw(st.integers(0, 12)),
        prompt=(*PREFIX[:prefix], *own),
        prefix=prefix,
        max_tokens=draw(st.integers(1, 12)),
        sampling=draw(st.sampled_from([Sampling(), Sampling(0.9), Sampling(1.5, 6), Sampling(1.0, 0, 0.8)])),
        group=draw(st.integers(0, 2)),
        max_parallel=draw(st.sampled_from([1, 2, 9])),
        alone=draw(st.sampled_from([False, False, False, True])),
        cancel_after=draw(st.sampled_from([None, None, None, 1, 4])),
        expire_after=draw(st.sampled_from([None, None, None, 2, 5])),
    )


@dataclass
class World:
    """Feeds a desk turn by turn, as a worker does."""

    desk: Desk
    memory: Memory
    clock: HandClock
    waiting: list[tuple[int, Ask]]
    seats: list[int] = field(default_factory=lambda: list(range(CHANNELS)))
    live: dict[int, tuple[Ask, int, int]] = field(default_factory=dict)
    ends: dict[int, End] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)

    def turn(self, number: int) -> None:
        for ticket, ask in [item for item in self.waiting if item[1].at <= number]:
            if self.seats:
                self._join(ticket, ask, number)
        for ticket, (ask, _, begun) in self.live.items():
            if ask.cancel_after is not None and number - begun >= ask.cancel_after:
                self.desk.end(ticket, FinishReason.CANCELLED)
        self.clock.now += 1
        self.desk.expire()
        plan = self.desk.plan()
        if plan is not None:
            assert sum(step.count for step in plan.steps) <= 24
            assert len(plan.steps) <= 4
            self.desk.run(plan)
        self._read(self.desk.report(plan, 0.0))
        self.memory.check()

    def _join(self, ticket: int, ask: Ask, number: int) -> None:
        self.waiting.remove((ticket, ask))
        channel = self.seats.pop()
        prompt = np.array(ask.prompt, np.int32)
        job = Job(channel, ask.group, prompt, ask.max_tokens, ask.prefix, ask.max_parallel, ask.alone)
        deadline = self.clock.now + ask.expire_after if ask.expire_after is not None else float("inf")
        self.live[ticket] = (ask, channel, number)
        self.texts[ticket] = ""
        self.desk.join(Order(ticket, job, ask.sampling, ticket, deadline))

    def _read(self, report) -> None:  # type: ignore[no-untyped-def]
        for text in report.texts:
            assert text.offset == len(self.texts[text.ticket])
            self.texts[text.ticket] += text.text
        for end in report.ends:
            assert end.ticket not in self.ends
            self.ends[end.ticket] = end
            self.seats.append(self.live.pop(end.ticket)[1])


@settings(max_examples=60, deadline=None)
@given(st.lists(asks(), min_size=1, max_size=12), st.sampled_from([11, 24, 60]), st.booleans())
def test_every_slot_equals_its_naive_answer(questions: list[Ask], pages: int, share: bool) -> None:
    clock, backend = HandClock(), FakeBackend(pages=pages)
    desk, memory = make_desk(backend, channels=4, rows=24, share_prefix=share, clock=clock)
    world = World(desk, memory, clock, list(enumerate(questions)))
    number = 0
    while world.waiting or world.live:
        world.turn(number)
        number += 1
        assert number < 2000, "somebody starves"
    desk.check()
    for ticket, ask in enumerate(questions):
        _compare(world.ends[ticket], world.texts[ticket], ask, ticket)


def _compare(end: End, streamed: str, ask: Ask, seed: int) -> None:
    tokens = naive_tokens(ask.prompt, ask.max_tokens, ask.sampling, seed, 128)
    assert streamed == end.text
    if end.finish in (FinishReason.CANCELLED, FinishReason.TIMEOUT):
        assert letters(tokens).startswith(end.text)
        assert end.tokens <= len(tokens)
        return
    assert end.text == letters(tokens)
    assert end.tokens == len(tokens)
    assert end.finish is (FinishReason.STOP if tokens[-1] == EOS else FinishReason.LENGTH)
