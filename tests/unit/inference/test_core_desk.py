"""Faults at the desk: what one slot meets, no other slot sees."""

from __future__ import annotations

import numpy as np
import pytest
from inference_fakes import EMPTY, VOCAB, FakeBackend, FakeTokenizer, HandClock, letters, make_desk, naive_tokens

from inference_svc.channels import Job
from inference_svc.desk import Desk
from inference_svc.grammars.choices import ChoiceList, Pieces
from inference_svc.grammars.port import GrammarFailed
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


class PlantedGrammar:
    """Allows everything, up to the fault of its kind."""

    def __init__(self, fault: str, error: BaseException) -> None:
        self.fault, self.error = fault, error

    def allowed(self) -> np.ndarray:
        if self.fault == "allowed":
            raise self.error
        return np.arange(VOCAB)

    def take(self, token: int) -> bool:
        if self.fault == "take":
            raise self.error
        return False


@pytest.mark.parametrize("fault", ["allowed", "take"])
@pytest.mark.parametrize(("error", "reason"), [(GrammarFailed("too hard"), "constraint"), (ValueError(), "internal")])
def test_a_fault_in_a_grammar_fails_its_own_slot_only(fault: str, error: Exception, reason: str) -> None:
    backend = FakeBackend()
    desk, _ = make_desk(backend)
    bad = _order(1, [9, 11], scrub=True)
    desk.join(Order(1, bad.job, Sampling(), 1, float("inf"), PlantedGrammar(fault, error)))
    desk.join(_order(2, [9, 12]))
    ends = _run(desk)
    assert (ends[1].finish, ends[1].reason) == (FinishReason.ERROR, reason)
    assert ends[1].detail == "too hard" if reason == "constraint" else ends[1].detail.startswith("internal error")
    assert ends[2].text == letters(naive_tokens([9, 12], 4, Sampling(), 2, 128))
    assert 11 not in backend.store


@pytest.mark.parametrize("part", ["_sampler", "_penalties", "_detokenizer", "_stops"])
def test_a_fault_in_one_slots_sampling_or_text_fails_that_slot_only(part: str) -> None:
    desk, _ = make_desk(FakeBackend())
    for ticket in (1, 2):
        order = _order(ticket, [9, ticket])
        desk.join(Order(ticket, order.job, Sampling(presence_penalty=0.1), ticket, float("inf")))
    setattr(desk._by_ticket[1].answer, part, object())
    ends = _run(desk)
    assert (ends[1].finish, ends[1].reason) == (FinishReason.ERROR, "internal")
    assert ends[2].finish is not FinishReason.ERROR
    assert ends[2].tokens > 0


@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_a_fault_in_the_end_of_a_text_ends_that_slot_only(how: str) -> None:
    clock = HandClock()
    desk, _ = make_desk(FakeBackend(), clock=clock)
    late = _order(1, [9, 1], tokens=50)
    desk.join(Order(1, late.job, Sampling(), 1, clock.now + 5))
    desk.join(_order(2, [9, 2]))
    desk._by_ticket[1].answer._detokenizer = object()  # type: ignore[assignment]
    if how == "cancel":
        desk.end(1, FinishReason.CANCELLED)
    else:
        clock.now += 5
        desk.expire()
    ends = _run(desk)
    assert (ends[1].finish, ends[1].reason) == (FinishReason.ERROR, "internal")
    assert ends[2].text == letters(naive_tokens([9, 2], 4, Sampling(), 2, 128))


def _mixed_orders() -> list[Order]:
    """Slots of all kinds: penalties, bias, choices, seeds and log probabilities."""
    lists = ChoiceList(Pieces(FakeTokenizer()), ["ABBA", "AB", "CAB", "QQQ"])  # type: ignore[arg-type]
    kinds = [
        Sampling(logprobs=3),
        Sampling(temperature=1.0, min_p=0.1, logprobs=0),
        Sampling(repetition_penalty=1.5, frequency_penalty=0.5, logprobs=1),
        Sampling(temperature=1.3, presence_penalty=-1.0, logit_bias={20: 2.0}, logprobs=20),
    ]
    orders = []
    for ticket in range(8):
        base = _order(ticket, [9 + ticket % 3, 10, 11 + ticket], tokens=6)
        grammar = lists.begin() if ticket % 2 else None
        orders.append(Order(ticket, base.job, kinds[ticket // 2], ticket, float("inf"), grammar))
    return orders


def test_packed_equals_alone_with_constraints_penalties_and_log_probabilities() -> None:
    packed_desk, _ = make_desk(FakeBackend())
    for order in _mixed_orders():
        packed_desk.join(order)
    packed = _run(packed_desk)
    for order in _mixed_orders():
        desk, _ = make_desk(FakeBackend(), rows=2)
        desk.join(order)
        alone = _run(desk)[order.ticket]
        assert (alone.text, alone.finish, alone.logprobs) == (
            packed[order.ticket].text,
            packed[order.ticket].finish,
            packed[order.ticket].logprobs,
        )
        assert len(alone.logprobs) == alone.tokens
