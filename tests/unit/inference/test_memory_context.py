"""Stored context: what is computed once, who reads it, what goes first, and what never changes an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from context_lab import Ask, World, compare, naive_answer
from inference_fakes import EMPTY, FakeBackend, HandClock, logits_of, make_desk

from inference_svc.channels import Kind, Part
from inference_svc.context import full_prompt, keeps_conversation, shared_parts
from inference_svc.memory import TooBig
from inference_svc.report import End
from inference_svc.rows import pages_for
from kev.bus.messages import Lane, PoolRef, QueuedQuestion
from kev.domain.outcome import FinishReason
from kev.domain.question import Isolation, Sampling

CONTEXT = 4200


def text(seed: int, count: int) -> tuple[int, ...]:
    """Tokens that end no answer."""
    return tuple(np.random.default_rng(seed).integers(8, 48, count).tolist())


def world_of(pages: int = 600, channels: int = 8, rows: int = 256, **layout: Any) -> World:
    clock = HandClock()
    backend = FakeBackend(pages=pages, max_context=CONTEXT)
    desk, memory = make_desk(backend, channels=channels, rows=rows, clock=clock, **({"prefixes": 1024} | layout))
    copies = layout.get("copies", False)
    return World(desk, memory, clock, channels=channels, copies=copies, rows=rows, seats_in_pack=channels)


def answers(world: World, asks: list[Ask]) -> list[End]:
    """Runs them, and compares each with its naive answer."""
    first = len(world.ends)
    ends = world.run(asks)
    for number, ask in enumerate(asks):
        compare(ends[number], world.texts[first + number], naive_answer(ask, first + number, logits_of, CONTEXT))
    return [ends[number] for number in range(len(asks))]


def test_a_prefix_of_1000_tokens_is_computed_once_for_32_questions() -> None:
    prefix, own = text(1, 1000), 5
    asks = [Ask((*prefix, *text(100 + n, own)), (0, 0, 1000), "shared", max_tokens=3) for n in range(32)]
    world = world_of(channels=32)
    ends = answers(world, asks)
    assert world.prompt_rows == 1000 + 32 * own
    assert all(end.reused == 1000 for end in ends)
    assert world.memory.prefix_pages == pages_for(1000)
    strict = world_of(pages=32 * pages_for(1010), channels=32)
    again = answers(strict, [Ask(ask.prompt, ask.chain, "strict", max_tokens=3) for ask in asks])
    assert strict.prompt_rows == 32 * 1005
    assert [end.text for end in again] == [end.text for end in ends]


def test_memory_of_a_shared_prefix_is_one_prefix_and_what_is_each_ones_own() -> None:
    world = world_of(channels=32)
    world.waiting += [
        (n, Ask((*text(1, 1000), *text(100 + n, 5)), (1000, 0, 0), "strict", max_tokens=9)) for n in range(32)
    ]
    for _ in range(6):
        world.turn()
    one = pages_for(1000 + 5 + 9 - 1) - 1000 // 16
    assert len(world.live) > 20
    assert 600 - world.memory.available == pages_for(1000) + len(world.live) * one


@pytest.mark.parametrize("layout", [{}, {"copies": True}])
def test_a_document_read_50_times_is_computed_once(layout: dict[str, Any]) -> None:
    document = text(2, 4000)
    asks = [Ask((*text(1, 20), *document, *text(n, 6)), (20, 4000, 0), "loose", max_tokens=2) for n in range(50)]
    world = world_of(pages=2000, channels=4, **layout)
    ends = answers(world, asks)
    assert world.prompt_rows == 20 + 4000 + 50 * 6
    assert {end.reused for end in ends} == {4020}
    assert (world.lookups[Kind.POOL, "miss"], world.lookups[Kind.POOL, "hit"]) == (1, 49)
    assert Kind.POOL not in world.evicted


@pytest.mark.parametrize("layout", [{}, {"copies": True}, {"copies": True, "unified": True}])
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_conversation_goes_on_where_it_was_or_from_its_beginning(layout: dict[str, Any], forgotten: bool) -> None:
    world = world_of(pages=600, **layout)
    prompt = (*text(1, 10), *text(5, 90))
    for turn in range(4):
        before = world.prompt_rows
        ask = Ask(prompt, (10, 0, 0), "loose", "a", max_tokens=20, sampling=Sampling(0.7))
        (end,) = answers(world, [ask])
        assert end.reused == (before > 0 and not forgotten) * (len(prompt) - 7) // 16 * 16 or end.reused % 16 == 10
        assert world.prompt_rows - before == len(prompt) - end.reused + 10 * (end.reused == 10)
        ticket = len(world.ends) - 1
        prompt = (*prompt, *naive_answer(ask, ticket, logits_of, CONTEXT), *text(turn, 6))
        if forgotten:
            while world.memory._shelf.evict(None):
                pass


def test_a_long_conversation_is_stored_once_however_many_turns_it_had() -> None:
    world = world_of()
    prompt = text(5, 100)
    for _ in range(5):
        answers(world, [Ask(prompt, level="loose", max_tokens=1)])
        prompt = (*prompt, *text(len(prompt), 40))
    assert len(world.memory._shelf) == 1
    assert world.memory.prefix_pages == (len(prompt) - 40) // 16
    other = Ask((*prompt[:100], 9), level="loose", max_tokens=1)
    assert answers(world, [other])[0].reused == 96, "an older turn is part of it"


@pytest.mark.parametrize("level", ["shared", "loose"])
def test_two_tenants_with_the_same_text_share_no_page(level: str) -> None:
    """``World`` checks the tables at every forward; here, that each tenant pays for its own."""
    world = world_of()
    chain = (20, 64 if level == "loose" else 0, 48)
    prompt = (*text(1, sum(chain)), 9, 9)
    asks = [Ask(prompt, chain, level, tenant, max_tokens=3) for tenant in "abab"]
    ends = answers(world, asks)
    assert world.prompt_rows == 20 + 2 * (sum(chain) - 20) + 4 * 2
    assert len({end.text for end in ends}) == 1
    owners: dict[int, set[object]] = {}
    for link in world.memory._shelf:
        for page in link.table[1:].tolist():
            owners.setdefault(page, set()).add(link.key[0])
    assert all(len(who) == 1 for who in owners.values())


def test_strict_shares_only_the_deployments_prefix_and_keeps_nothing() -> None:
    world = world_of()
    ask = Ask((*text(1, 100), 9), (32, 0, 60), "strict", max_tokens=2)
    for _ in range(2):
        assert answers(world, [ask])[0].reused == 32
    assert world.memory.prefix_pages == 2


def test_the_context_used_least_recently_goes_first() -> None:
    world = world_of(pages=20, channels=1)
    asks = [Ask((*text(n, 64), 9), (0, 0, 64), "shared", max_tokens=2) for n in range(5)]
    for number in (0, 1, 2, 0):
        answers(world, [asks[number]])
    answers(world, [Ask((*text(9, 100), 9), max_tokens=30)])
    assert world.evicted == {Kind.BATCH: 1}
    assert world.lookups[Kind.BATCH, "miss"] == 3
    answers(world, [asks[0], asks[2]])
    assert world.lookups[Kind.BATCH, "miss"] == 3
    answers(world, [asks[1]])
    assert world.lookups[Kind.BATCH, "miss"] == 4


def test_context_stays_below_its_cap() -> None:
    world = world_of(context_pages=10)
    for number in range(6):
        answers(world, [Ask((*text(number, 64), 9), (0, 0, 64), "shared", max_tokens=2)])
        assert world.memory.prefix_pages <= 10
    (end,) = answers(world, [Ask((*text(7, 200), 9), (0, 0, 200), "shared", max_tokens=2)])
    assert end.reused == 0, "what does not fit is computed for itself"


def test_a_kept_conversation_gives_way_to_its_own_reader_when_both_have_no_room() -> None:
    world = world_of(pages=12, channels=1)
    begin = text(1, 20)
    answers(world, [Ask((*begin, *text(2, 150)), level="loose", max_tokens=2)])
    (end,) = answers(world, [Ask((*begin, *text(3, 150)), level="loose", max_tokens=2)])
    assert end.reused == 0


def test_a_link_that_nobody_waits_for_any_more_is_not_computed() -> None:
    world = world_of(rows=64)
    world.waiting.append((0, Ask((*text(1, 2000), 9), (0, 0, 2000), "shared", cancel_after=2)))
    for _ in range(6):
        world.turn()
    assert world.ends[0].finish is FinishReason.CANCELLED
    assert world.prompt_rows <= 3 * 64
    assert world.memory.available == 600
    assert world.memory.prefix_pages == 0


def test_a_suspect_has_nothing_computed_beside_others_but_reads_what_is_there() -> None:
    world = world_of()
    suspect = Ask((*text(1, 64), 9), (0, 0, 64), "shared", max_tokens=2, alone=True)
    assert answers(world, [suspect])[0].reused == 0
    answers(world, [Ask((*text(1, 64), 10), (0, 0, 64), "shared", max_tokens=2)])
    assert answers(world, [suspect])[0].reused == 64


def test_faulty_context_is_not_read_again_nor_what_stands_on_it() -> None:
    world = world_of()
    backend = world.desk._backend
    chain = (32, 32, 32)
    ask = Ask((*text(1, 96), 9), chain, "loose", max_tokens=2)
    answers(world, [ask])
    assert len(world.memory._shelf) == 3
    backend.poison = frozenset({5})  # type: ignore[attr-defined]
    system = next(link for link in world.memory._shelf if link.kind is Kind.SYSTEM)
    backend.store[system.table[0], 3] = 5  # type: ignore[attr-defined]
    assert world.run([ask])[0].reason == "non_finite"
    assert len(world.memory._shelf) == 0
    world.desk.check()
    assert 5 not in backend.store  # type: ignore[attr-defined]
    assert answers(world, [ask])[0].finish is not FinishReason.ERROR


def test_context_that_cannot_be_computed_is_tried_once_for_each_link() -> None:
    world = world_of()
    prompt = text(1, 96)
    world.desk._backend.crash = frozenset({prompt[3]})  # type: ignore[attr-defined]
    innocent = Ask(tuple(token for token in text(2, 9) if token != prompt[3]), max_tokens=2)
    ends = world.run([Ask((*prompt, 9), (32, 32, 32), "loose", max_tokens=2), innocent], most=20)
    assert (ends[0].finish, ends[0].reason) == (FinishReason.ERROR, "internal")
    assert ends[1].finish is not FinishReason.ERROR
    assert world.memory.prefix_pages == 0


def test_an_answer_without_a_way_on_costs_nobody_the_context_that_it_read() -> None:
    world = world_of()
    ask = Ask((*text(1, 64), 9), (64, 0, 0), "strict", max_tokens=9)
    answers(world, [ask])
    world.waiting.append((len(world.ends), ask))
    world.turn()
    (live,) = world.desk._by_ticket.values()
    world.desk._fail(live, "constraint", "no way on")
    world.turn()
    assert answers(world, [ask])[0].reused == 64
    assert world.lookups[Kind.SYSTEM, "miss"] == 1


def test_all_context_is_scrubbed_when_it_goes() -> None:
    world = world_of()
    answers(world, [Ask((*text(1, 96), 9), (32, 32, 32), "loose", max_tokens=40)])
    while world.memory._shelf.evict(None):
        pass
    world.desk.check()
    backend = world.desk._backend
    held = 0 if world.memory.available == 600 else 1
    assert held == 0
    assert np.isin(backend.store, EMPTY).sum() >= backend.store.size - 16 * 16  # type: ignore[attr-defined]


def test_too_long_with_a_pool_is_told_in_numbers() -> None:
    world = world_of(pages=20)
    ask = Ask((*text(1, CONTEXT)[:CONTEXT],), (10, 4000, 0), "loose")
    with pytest.raises(TooBig, match=r"4200 tokens, 4000 of them of its context pool; a channel holds 4200"):
        world.memory.limit_of(ask.job(0))
    ask = Ask(text(1, 500), (10, 300, 0), "loose")
    with pytest.raises(TooBig, match="prompt, 300 of them of its context pool and answer need 32 KV pages"):
        world.memory.limit_of(ask.job(0))


def _question(level: Isolation, pool: int = 0, batch: int = 0) -> QueuedQuestion:
    return QueuedQuestion(
        "r", "req", "t", 0, np.arange(10, dtype="<i4").tobytes(), 3, 5, Sampling(), 1, 0, 0, level, 8, Lane("w", 0),
        -1, "home", "d", pool=PoolRef("k", "d", pool) if pool else None, batch_prefix_tokens=batch,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("level", "parts", "keeps"),
    [
        (Isolation.STRICT, (), False),
        (Isolation.SHARED, (Part(Kind.BATCH, 107),), False),
        (Isolation.LOOSE, (Part(Kind.POOL, 103), Part(Kind.BATCH, 107)), True),
    ],
)
def test_a_level_says_what_may_be_shared(level: Isolation, parts: tuple[Part, ...], keeps: bool) -> None:
    question = _question(level, pool=100, batch=4)
    assert shared_parts(question) == parts
    assert keeps_conversation(question) is keeps


def test_a_pool_stands_between_system_prompt_and_the_rest() -> None:
    pool = np.array([90, 91], np.int32)
    assert full_prompt(_question(Isolation.LOOSE, pool=2), pool).tolist() == [0, 1, 2, 90, 91, 3, 4, 5, 6, 7, 8, 9]
    assert full_prompt(_question(Isolation.LOOSE), None).tolist() == list(range(10))


@pytest.mark.parametrize("layout", [{}, {"copies": True}])
def test_a_conversation_that_finds_no_room_does_not_take_the_system_prompt_with_it(layout: dict[str, Any]) -> None:
    """Making room for its conversation drops the idle system prompt, on which that conversation does not stand; what
    was dropped must not be read when there is room without the conversation."""
    system = text(1, 32)
    first = Ask((*system, *text(2, 30)), (32, 0, 0), "loose", max_tokens=3, alone=True)  # computes all of it itself
    other = Ask((*system, *text(3, 5)), (32, 0, 0), "strict", max_tokens=1)
    answers(world := world_of(pages=60, **layout), [first])
    begun = (*first.prompt, *naive_answer(first, 0, logits_of, CONTEXT))
    answers(world, [other])
    assert world.memory.prefix_pages == 4 + 2
    left = 13 if layout else 9
    fills_up = Ask(text(4, 16 * (world.memory.available - left) - 8), max_tokens=9)
    follows = Ask((*begun, *text(5, 16 * 16 - 8 - len(begun))), (32, 0, 0), "loose", max_tokens=9, at=world.number + 1)
    answers(world, [fills_up, follows])


def test_two_that_wait_for_context_do_not_drop_each_others_for_ever() -> None:
    """The first one's conversation would need more room than there is while the other one's pool is computed. Trying
    for it must not cost the first one its own pool: else both compute theirs again and again."""
    clock = HandClock()
    desk, memory = make_desk(FakeBackend(pages=11), rows=1, clock=clock, prefixes=9, copies=True, unified=True)
    world = World(desk, memory, clock, copies=True, rows=1, seats_in_pack=8)
    begin = Ask(text(1, 48), (0, 0, 0), "loose", "b", max_tokens=1)
    world.run([begin])
    assert memory.prefix_pages == 3
    asks = [
        Ask((*text(3, 15), *text(4, 20)), (0, 15, 0), "loose", "a", max_tokens=4, priority=2),
        Ask((*begin.prompt, *text(2, 20)), (0, 16, 0), "loose", "b", max_tokens=4, at=world.number + 1),
    ]
    ends = world.run(asks, most=400)
    for number, ask in enumerate(asks):
        compare(ends[number], world.texts[1 + number], naive_answer(ask, 1 + number, logits_of, 128))


def test_what_stands_on_faulty_context_is_not_kept_either() -> None:
    """Two read the same system prompt; one of them meets a fault. What the other one leaves holds those pages."""
    world = world_of()
    backend = world.desk._backend
    system = text(1, 32)
    bad = next(token for token in range(8, 48) if token not in (*system, *text(2, 30)))
    backend.poison = frozenset({bad})  # type: ignore[attr-defined]
    fine = Ask((*system, *text(2, 30)), (32, 0, 0), "loose", max_tokens=6)
    faulty = Ask((*system, bad), (32, 0, 0), "strict", max_tokens=1)
    ends = world.run([fine, faulty])
    assert (ends[0].reused, ends[1].reason) == (32, "non_finite")
    assert world.memory.prefix_pages == 0
    assert world.memory.available == 600


@pytest.mark.parametrize("layout", [{}, {"copies": True}])
def test_context_that_was_cut_otherwise_leaves_room_for_its_reader(layout: dict[str, Any]) -> None:
    """The same text up to position 64, declared in two parts by one and in one by the other: two parts take a page
    more, for which the other one would wait for ever, and hold up all behind it."""
    begin = text(1, 64)
    parted = Ask((*begin, *text(2, 5)), (0, 15, 49), "loose", max_tokens=1)
    whole = Ask((*begin, *text(3, 40)), (0, 0, 64), "shared", max_tokens=5)
    world = world_of(pages=11 if layout else 7, **layout)
    answers(world, [parted])
    answers(world, [whole])


def test_whoever_has_a_whole_chain_computed_has_missed_all_of_it() -> None:
    world = world_of()
    ask = Ask((*text(1, 96), 9), (32, 32, 32), "shared", max_tokens=2)
    answers(world, [ask])
    assert world.lookups == {(Kind.SYSTEM, "miss"): 1, (Kind.BATCH, "miss"): 1}
    answers(world, [ask])
    assert world.lookups == {(kind, result): 1 for kind in (Kind.SYSTEM, Kind.BATCH) for result in ("miss", "hit")}
