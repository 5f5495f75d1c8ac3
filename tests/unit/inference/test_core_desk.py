"""Faults at the desk: what one slot meets, no other slot sees."""

from __future__ import annotations

import numpy as np
import pytest
from inference_fakes import EMPTY, FakeBackend, HandClock, letters, make_desk, naive_tokens

from inference_svc.channels import Job
from inference_svc.desk import Desk
from inference_svc.report import End, Order
from kev.domain.outcome import FinishReason
from kev.domain.question import Sampling

PREFIX = list(range(8, 28))


def _order(ticket: int, prompt: list[int], tokens: int = 4, **job: object) -> Order:
    made = Job(ticket % 8, ticket, np.array(prompt, np.int32), tokens, **job)  # type: ignore[arg-type]
    return Order(ticket, made, Sampling(), ticket, float("inf"))


def _run(desk: Desk, most: int = 200) -> dict[int, End]:
    ends: dict[int, End] = {}
    for _ in range(most):
        plan = desk.plan()
        if plan is not None:
            desk.run(plan)
        ends |= {end.ticket: end for end in desk.report(plan, 0.0).ends}
        if desk.idle:
            break
    desk.check()
    return ends


def test_a_slot_with_a_nan_is_scrubbed_even_if_its_level_asks_for_none() -> None:
    backend = FakeBackend(poison=frozenset({40}))
    desk, _ = make_desk(backend)
    desk.join(_order(1, [40, 9], scrub=False))
    desk.join(_order(2, [9, 9], scrub=False))
    ends = _run(desk)
    assert (ends[1].finish, ends[1].reason, ends[1].text) == (FinishReason.ERROR, "non_finite", "")
    assert ends[2].text == letters(naive_tokens([9, 9], 4, Sampling(), 2, 128))
    assert 40 not in backend.store
    assert 9 in backend.store


def test_a_prefix_that_turned_bad_is_computed_again() -> None:
    backend = FakeBackend()
    desk, memory = make_desk(backend)
    desk.join(_order(1, [*PREFIX, 9], prefix=20))
    assert _run(desk)[1].finish is not FinishReason.ERROR
    kept = memory.prefix_pages
    backend.poison = frozenset({45})
    backend.store[backend.store == PREFIX[3]] = 45
    desk.join(_order(2, [*PREFIX, 9], prefix=20))
    assert _run(desk)[2].reason == "non_finite"
    assert memory.prefix_pages == 0
    assert 45 not in backend.store
    desk.join(_order(3, [*PREFIX, 9], prefix=20))
    assert _run(desk)[3].text == letters(naive_tokens([*PREFIX, 9], 4, Sampling(), 3, 128))
    assert memory.prefix_pages == kept


def test_a_prefix_that_cannot_be_computed_fails_its_own_slots_only() -> None:
    backend = FakeBackend(crash=frozenset({PREFIX[2]}))
    desk, _ = make_desk(backend)
    for ticket in (1, 2):
        desk.join(_order(ticket, [*PREFIX, 9], prefix=20))
    desk.join(_order(3, [9]))
    ends = _run(desk)
    assert [ends[ticket].finish for ticket in (1, 2)] == [FinishReason.ERROR] * 2
    assert ends[3].text == letters(naive_tokens([9], 4, Sampling(), 3, 128))


def test_a_bad_page_table_fails_its_own_slot_only() -> None:
    desk, _ = make_desk(FakeBackend())
    for ticket in (1, 2):
        desk.join(_order(ticket, [9, ticket]))
    plan = desk.plan()
    assert plan is not None
    plan.steps[0].run.table = np.empty(0, np.int32)
    desk.run(plan)
    assert desk.report(plan, 0.0).ends[0].reason == "internal"
    assert _run(desk)[2].text == letters(naive_tokens([9, 2], 4, Sampling(), 2, 128))


def test_everything_is_scrubbed_when_the_last_slot_leaves() -> None:
    backend = FakeBackend()
    desk, _ = make_desk(backend, unified=True)
    desk.join(_order(1, [9] * 40))
    _run(desk)
    assert (backend.store == EMPTY).all()


@pytest.mark.parametrize("length", [1, 15, 16, 17, 33])
def test_a_prefix_hit_gives_the_bits_of_a_miss(length: int) -> None:
    prompt = [(7 * n) % 40 + 8 for n in range(40)]
    texts = []
    for share in (True, False):
        desk, _ = make_desk(FakeBackend(), share_prefix=share, rows=16)
        for ticket in range(3):
            desk.join(_order(ticket, [*prompt, 8 + ticket], tokens=9, prefix=length))
        texts.append({ticket: end.text for ticket, end in _run(desk).items()})
    assert texts[0] == texts[1]


def test_a_deadline_ends_a_slot_with_what_was_held_back() -> None:
    clock, backend = HandClock(), FakeBackend()
    desk, _ = make_desk(backend, clock=clock)
    whole = letters(naive_tokens([9], 3, Sampling(), 1, 128))
    order = _order(1, [9], tokens=50)
    stop = Sampling(stop=(whole[2] + "\0never",))
    desk.join(Order(1, order.job, stop, 1, clock.now + 5))
    said = ""
    for _ in range(3):
        plan = desk.plan()
        assert plan is not None
        desk.run(plan)
        said += "".join(text.text for text in desk.report(plan, 0.0).texts)
    assert said == whole[:2]
    clock.now += 5
    desk.expire()
    report = desk.report(None, 0.0)
    assert (report.ends[0].finish, report.ends[0].text) == (FinishReason.TIMEOUT, whole)
    assert report.texts[0].text == whole[2]
    assert report.texts[0].offset == 2
