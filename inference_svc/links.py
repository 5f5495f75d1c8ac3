"""Stored context: what was computed once and is read by several runs.

A *link* is a stored beginning of prompts: the deployment's system prompt, a
context pool, a batch's prefix, or an earlier conversation. Links stand on one
another: each holds a page table of its whole chain, from position 0 on. The
``Shelf`` finds them, drops those that nobody uses, and forgets faulty ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from inference_svc.channels import Kind, Run
from inference_svc.page_index import PageIndex
from inference_svc.pages import PageAllocator
from inference_svc.rows import Int32Array

Key: TypeAlias = tuple[Hashable, bytes]
"""Whose it is, and all tokens from position 0 on."""


@dataclass(slots=True, eq=False)
class Link:
    """One stored beginning.

    Attributes:
        owner: Its name in the page allocator.
        key: Its scope and tokens.
        tokens: All tokens of its chain, int32 ``[end]``.
        table: Pages of all of them. The full ones of its parent may be the parent's own.
        parent: What it stands on.
        fill: The run that computes it; None for pages that a finished run left.
        readers: Runs and links that stand on it.
        waiting: Channels of runs that wait until it is computed.
        used: When it was last read, in admissions.
        retired: Out of use: nobody may begin to read it.
    """

    owner: Hashable
    kind: Kind
    key: Key
    tokens: Int32Array
    table: Int32Array
    parent: Link | None = None
    fill: Run | None = None
    readers: int = 0
    waiting: set[int] = field(default_factory=set)
    used: int = 0
    retired: bool = False

    @property
    def end(self) -> int:
        """Positions that it holds."""
        return len(self.tokens)

    @property
    def ready(self) -> bool:
        """Whether all of it is computed."""
        return self.fill is None or self.fill.pending == 0

    @property
    def idle(self) -> bool:
        """Whether nobody would miss it."""
        return self.ready and self.readers == 0

    def chain(self) -> Iterator[Link]:
        """This link, what it stands on, and so on."""
        link: Link | None = self
        while link is not None:
            yield link
            link = link.parent

    @property
    def root(self) -> Link:
        """The first link of its chain."""
        *_, last = self.chain()
        return last

    @property
    def depth(self) -> int:
        """Links in its chain."""
        return sum(1 for _ in self.chain())


class Shelf:
    """All links that may be read. Frees their pages; whoever scrubs finds them in ``scrubs``.

    Attributes:
        scrubs: Pages to zero, shared with the memory.
        evicted: Links dropped for room, by kind.
    """

    def __init__(self, allocator: PageAllocator, scrubs: list[int]) -> None:
        self._allocator = allocator
        self._declared: dict[Key, Link] = {}
        self._kept: PageIndex[Link] = PageIndex()
        self._links: dict[Hashable, Link] = {}
        self._tick = 0
        self._pages: int | None = 0
        self.scrubs = scrubs
        self.evicted: Counter[Kind] = Counter()

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[Link]:
        return iter(tuple(self._links.values()))

    @property
    def pages(self) -> int:
        """Pages of all links, each counted once."""
        if self._pages is None:
            self._pages = len({page for link in self._links.values() for page in link.table.tolist()})
        return self._pages

    def find(self, key: Key) -> Link | None:
        """The declared link of a key, ready or not."""
        return self._declared.get(key)

    def kept(self, scope: Hashable, tokens: Int32Array, digests: Sequence[bytes]) -> tuple[int, Link | None]:
        """The kept conversation that goes furthest along these tokens; how many positions, whole pages only."""
        pages, link = self._kept.longest(scope, digests)
        count = pages * self._kept.size
        if link is None or not (link.tokens[:count] == tokens[:count]).all():
            return 0, None
        return count, link

    def add(self, link: Link, digests: Sequence[bytes] = ()) -> None:
        """Takes a link in; with ``digests`` of its pages as a kept conversation."""
        self._links[link.owner] = link
        if link.parent is not None:
            link.parent.readers += 1
        if link.kind is Kind.CONVERSATION:
            self._kept.add(link.key[0], digests, link)
        else:
            self._declared[link.key] = link
        self._pages = None
        self.touch(link)

    def touch(self, link: Link) -> None:
        """It is used now, and what it stands on is, too."""
        self._tick += 1
        for one in link.chain():
            one.used = self._tick

    def evict(self, *keep: Link | None) -> bool:
        """Drops the idle link that was used least recently, never one of ``keep``'s chains; False if there is none."""
        kept = {id(one) for link in keep if link is not None for one in link.chain()}
        idle = [link for link in self._links.values() if link.idle and id(link) not in kept]
        if not idle:
            return False
        victim = min(idle, key=lambda link: (link.used, -link.depth))
        self.evicted[victim.kind] += 1
        self.drop(victim)
        return True

    def drop(self, link: Link) -> None:
        """Forgets a link that nobody reads, and frees its pages."""
        self._forget(link)
        self._free(link)

    def release(self, link: Link) -> None:
        """A run has stopped reading it."""
        link.readers -= 1
        if link.retired and link.readers == 0:
            self._free(link)

    def retire(self, link: Link) -> None:
        """Takes all that stands on the same root out of use; each is freed after its last reader."""
        if link.retired:
            return
        root = link.root
        tree = [one for one in self._links.values() if one.root is root]
        for one in sorted(tree, key=lambda one: -one.depth):
            self._forget(one)
            one.retired = True
            if one.readers == 0:
                self._free(one)

    def _forget(self, link: Link) -> None:
        del self._links[link.owner]
        if link.kind is Kind.CONVERSATION:
            self._kept.remove(link)
        else:
            del self._declared[link.key]
        self._pages = None

    def _free(self, link: Link) -> None:
        self.scrubs.extend(self._allocator.release(link.owner))
        if link.parent is not None:
            self.release(link.parent)
