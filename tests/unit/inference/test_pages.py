"""The page allocator never loses a page and never gives one to two owners."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from inference_svc.pages import IntegrityError, OutOfPages, PageAllocator

PAGES = 12
OWNERS = st.sampled_from("abcd")


def test_pages_come_in_order_and_go_back() -> None:
    pages = PageAllocator(4)
    assert pages.allocate("a", 2) == [0, 1]
    assert pages.allocate("b", 1) == [2]
    assert pages.available == 1
    assert pages.release("a") == [0, 1]
    assert pages.release("a") == []
    assert pages.allocate("c", 2) == [0, 1]
    pages.check_integrity()


def test_too_many_pages_are_refused_whole() -> None:
    pages = PageAllocator(4)
    pages.allocate("a", 3)
    with pytest.raises(OutOfPages, match="2 pages wanted, 1 of 4 are free"):
        pages.allocate("b", 2)
    assert pages.available == 1
    assert pages.held("b") == ()


def test_a_shared_page_lives_as_long_as_its_last_holder() -> None:
    pages = PageAllocator(4)
    prefix = pages.allocate("prefix", 2)
    pages.share("a", prefix)
    pages.share("b", prefix[:1])
    assert pages.holders(0) == {"prefix", "a", "b"}
    assert not pages.writable("prefix", 0)
    assert pages.release("prefix") == []
    assert pages.release("a") == [1]
    assert pages.release("b") == [0]
    assert pages.available == 4


def test_only_held_pages_can_be_shared() -> None:
    pages = PageAllocator(4)
    own = pages.allocate("a", 1)
    for wrong in (3, 99):
        with pytest.raises(ValueError, match="held by nobody"):
            pages.share("b", [*own, wrong])
    assert pages.writable("a", 0), "nothing was changed"


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="pages"):
        PageAllocator(0)
    with pytest.raises(ValueError, match="n:"):
        PageAllocator(1).allocate("a", -1)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda books: books._private["a"].update(books._private["b"]), "more than one place"),
        (lambda books: books._free.pop(), "lost"),
        (lambda books: books._free.append(99), "unknown"),
        (lambda books: books._free.append(0), "more than one place"),
        (lambda books: books._shared.__setitem__(books._free.pop(), set()), "shared by nobody"),
    ],
)
def test_damaged_books_are_found(damage: object, reason: str) -> None:
    pages = PageAllocator(6)
    pages.allocate("a", 2)
    pages.allocate("b", 2)
    pages.check_integrity()
    damage(pages)  # type: ignore[operator]
    with pytest.raises(IntegrityError, match=reason):
        pages.check_integrity()


class Books(RuleBasedStateMachine):
    """Any sequence of calls, against a plain model: who holds which page."""

    def __init__(self) -> None:
        super().__init__()
        self.pages = PageAllocator(PAGES)
        self.holders: dict[int, set[str]] = {page: set() for page in range(PAGES)}

    def _free(self) -> int:
        return sum(not names for names in self.holders.values())

    @rule(owner=OWNERS, n=st.integers(0, 5))
    def allocate(self, owner: str, n: int) -> None:
        if n > self._free():
            with pytest.raises(OutOfPages):
                self.pages.allocate(owner, n)
            return
        for page in self.pages.allocate(owner, n):
            assert not self.holders[page], "a held page was given away"
            self.holders[page].add(owner)

    @precondition(lambda self: any(self.holders.values()))
    @rule(owner=OWNERS, data=st.data())
    def share(self, owner: str, data: st.DataObject) -> None:
        held = sorted(page for page, names in self.holders.items() if names)
        chosen = data.draw(st.lists(st.sampled_from(held), unique=True))
        self.pages.share(owner, chosen)
        for page in chosen:
            self.holders[page].add(owner)

    @rule(owner=OWNERS)
    def release(self, owner: str) -> None:
        freed = [page for page, names in self.holders.items() if names == {owner}]
        for names in self.holders.values():
            names.discard(owner)
        assert self.pages.release(owner) == freed

    @invariant()
    def balanced(self) -> None:
        self.pages.check_integrity()
        assert self.pages.available == self._free()
        for page, names in self.holders.items():
            assert self.pages.holders(page) == names
            assert sum(self.pages.writable(owner, page) for owner in "abcd") <= 1


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
