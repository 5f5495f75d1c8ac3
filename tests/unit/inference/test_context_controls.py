"""Faults built into the memory must be seen by the checks that the other tests rely on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pytest
from context_lab import Ask, World, naive_answer
from inference_fakes import EMPTY, FakeBackend, HandClock, letters, logits_of, make_desk

from inference_svc.links import Link
from inference_svc.memory import Memory
from inference_svc.pages import IntegrityError
from inference_svc.rows import Int32Array

CONTEXT = 128
PREFIX = tuple(8 + 5 * n % 37 for n in range(40))
ASKS = [Ask((*PREFIX, 8 + n, 9), (0, 0, 40), "shared", max_tokens=6) for n in range(3)]
Spoil = Callable[[pytest.MonkeyPatch, World], None]


class Backend(FakeBackend):
    """Remembers whether it was asked to scrub, and does so only if it should."""

    scrubbing = True

    def scrub(self, pages: Sequence[int]) -> None:
        if self.scrubbing:
            super().scrub(pages)


def _world(**layout: Any) -> World:
    clock = HandClock()
    desk, memory = make_desk(Backend(), channels=4, rows=24, clock=clock, **({"prefixes": 9} | layout))
    return World(desk, memory, clock, copies=layout.get("copies", False))


def _all_right(world: World) -> bool:
    """Twice the same questions, each against its naive answer."""
    for _ in range(2):
        first = len(world.ends)
        ends = world.run(ASKS)
        naive = [naive_answer(ask, first + n, logits_of, CONTEXT) for n, ask in enumerate(ASKS)]
        if any(ends[n].text != letters(answer) for n, answer in enumerate(naive)):
            return False
    return True


def _clean(world: World) -> bool:
    """After strict questions only, the store holds nothing."""
    world.run([Ask((*PREFIX, 9), max_tokens=6)])
    return bool((world.desk._backend.store == EMPTY).all())  # type: ignore[attr-defined]


def test_without_a_fault_all_is_right() -> None:
    assert _all_right(_world())
    assert _all_right(_world(copies=True))
    assert _clean(_world())


def test_a_scrub_that_is_skipped_is_seen() -> None:
    world = _world()
    world.desk._backend.scrubbing = False  # type: ignore[attr-defined]
    assert not _clean(world)


def _wrong_pages(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """Readers get the pages in another order than they were computed in."""
    original = Memory._table_on

    def turned(self: Memory, owner: Hashable, source: Link | None, done: int, own: int) -> Int32Array:
        table = original(self, owner, source, done, own)
        return np.concatenate([table[1::-1], table[2:]]) if source is not None else table

    monkeypatch.setattr(Memory, "_table_on", turned)


def _tail_not_copied(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """The part of a page at a link's end is missing."""
    original = Memory._attach

    def forgetful(self: Memory, *arguments: Any) -> Any:
        admission = original(self, *arguments)
        self.copies.clear()
        return admission

    monkeypatch.setattr(Memory, "_attach", forgetful)


def _wrong_text(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """A link is found by the length of its text alone."""
    original = Memory._wishes
    world.run([Ask((*reversed(PREFIX), 9), (0, 0, 40), "shared", max_tokens=2)])

    def blind(self: Memory, run: Any) -> Any:
        return [wish._replace(key=(wish.key[0], bytes(len(wish.key[1])))) for wish in original(self, run)]

    for link in world.memory._shelf:
        known = world.memory._shelf._declared
        known[link.key[0], bytes(len(link.key[1]))] = known.pop(link.key)
        link.key = (link.key[0], bytes(len(link.key[1])))
    monkeypatch.setattr(Memory, "_wishes", blind)


@pytest.mark.parametrize("spoil", [_wrong_pages, _tail_not_copied, _wrong_text])
def test_a_wrong_reference_is_seen(monkeypatch: pytest.MonkeyPatch, spoil: Spoil) -> None:
    world = _world()
    monkeypatch.setattr(World, "check_tables", lambda self: None)
    spoil(monkeypatch, world)
    assert not _all_right(world)


def test_a_page_of_another_tenant_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference_svc.memory._scope", lambda job: "all")
    world = _world()
    with pytest.raises(AssertionError, match="two tenants share a page"):
        world.run(
            [
                Ask(ask.prompt, ask.chain, "shared", tenant, max_tokens=6)
                for ask, tenant in zip(ASKS, "aba", strict=True)
            ]
        )


def test_a_page_that_is_still_written_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partial tail that is read in place, not copied."""
    original = Memory._table_on

    def in_place(self: Memory, owner: Hashable, source: Link | None, done: int, own: int) -> Int32Array:
        table = original(self, owner, source, done, own)
        if source is not None:
            table[done // 16] = source.table[done // 16]
        return table

    monkeypatch.setattr(Memory, "_table_on", in_place)
    with pytest.raises(AssertionError, match="a page that somebody still writes"):
        _world().run(ASKS)


def test_a_page_in_two_tables_is_seen_where_there_shall_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _world()
    world.copies = True
    with pytest.raises(AssertionError, match="in two tables"):
        world.run(ASKS)


def test_a_link_that_names_a_page_that_is_not_its_own_is_seen() -> None:
    world = _world()
    world.run(ASKS)
    link = next(iter(world.memory._shelf))
    link.table[0] = link.table[0] + 20
    with pytest.raises(IntegrityError, match="its table and its pages differ"):
        world.desk.check()
