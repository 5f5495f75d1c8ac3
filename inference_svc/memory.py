"""Who gets pages: admission by real need, and context that is stored once.

A run gets all pages that it can come to need before it starts, so a run that
has started never waits for memory. The beginning of a prompt is a chain of
links: the deployment's system prompt, a context pool, a batch's prefix, an
earlier conversation. A declared link is filled once, by a run of its own, on
top of the link before it; a conversation is what a finished run left. Full
pages are read by all (or copied, where no page may be in two tables), a
partial tail is always copied.

A link is found by its scope and all tokens from position 0 on. The scope of
the system prompt is the deployment, that of all else is a tenant: two tenants
never share a page of anything else, were the texts the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

import numpy as np

from inference_svc.channels import Job, Kind, Run
from inference_svc.links import Key, Link, Shelf
from inference_svc.page_index import page_digests
from inference_svc.pages import IntegrityError, PageAllocator
from inference_svc.rows import PAGE_SIZE, Int32Array, pages_for

MOST_FAULTY = 64
"""Texts remembered as not to be stored, because computing them failed."""


class TooBig(ValueError):
    """The slot can never run here: context or KV store is too small for it."""


class Admission(Enum):
    """What became of a wish for pages."""

    ADMITTED = auto()
    NO_ROOM = auto()
    PREFIX_COMES = auto()


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """How memory is given out.

    Attributes:
        max_context: Most tokens of prompt and answer together.
        unified: Every channel reserves ``max_context`` positions.
        share_prefix: Whether the deployment's prefix is stored once for all.
        links: Most stored beginnings.
        copies: A run gets copies of stored pages, so that no page is ever in two tables.
        context_pages: Most pages of stored beginnings; 0 bounds them by the store alone.
    """

    max_context: int
    unified: bool = False
    share_prefix: bool = True
    links: int = 1024
    copies: bool = False
    context_pages: int = 0


class _Wish(NamedTuple):
    """A stored beginning that a run would read."""

    kind: Kind
    key: Key
    end: int


class Memory:
    """Page tables of all runs. Pure: what the store must do is left in ``scrubs`` and ``copies``.

    Attributes:
        scrubs: Pages to zero before anything else.
        copies: (source, target) pages to copy after that, before the next forward.
    """

    def __init__(self, allocator: PageAllocator, pages: int, limits: MemoryLimits) -> None:
        self._allocator = allocator
        self._pages = pages
        self._limits = limits
        self._faulty: dict[Key, None] = {}
        self._made = 0
        self.scrubs: list[int] = []
        self.copies: list[tuple[int, int]] = []
        self._lookups: Counter[tuple[Kind, str]] = Counter()
        self._shelf = Shelf(allocator, self.scrubs)

    @property
    def available(self) -> int:
        """Free pages."""
        return self._allocator.available

    @property
    def prefix_pages(self) -> int:
        """Pages of stored beginnings, each counted once."""
        return self._shelf.pages

    def news(self) -> tuple[Counter[tuple[Kind, str]], Counter[Kind]]:
        """Since the last call: stored beginnings that runs looked for, by kind and by whether they were there
        (``hit``) or had to be computed (``miss``); and those that were dropped for room, by kind."""
        found = self._lookups, self._shelf.evicted
        self._lookups, self._shelf.evicted = Counter(), Counter()
        return found

    def limit_of(self, job: Job) -> int:
        """Most tokens of prompt and answer together.

        Raises:
            TooBig: there is no room for the prompt and one token, or the store has too few pages.
        """
        prompt, context = len(job.prompt), self._limits.max_context
        if prompt + 1 > context:
            raise TooBig(f"the prompt has {prompt} tokens{_of_pool(job)}; a channel holds {context}, answer included")
        limit = min(prompt + job.max_tokens, context)
        if (need := self._need(limit)) > self._pages:
            raise TooBig(f"prompt{_of_pool(job)} and answer need {need} KV pages; the store has {self._pages}")
        return limit

    def admit(self, run: Run) -> Admission:
        """Gives a run its pages, if they are there. With something to share, ``done`` starts after it."""
        wishes = self._wishes(run)
        done, source = self._deepest(wishes)
        kept, conversation = self._conversation(run)
        # Not at the price of what is read without it: that would be gone if there is no room even then.
        if kept > done and self._make_room(self._own(run, kept), conversation, source):
            return self._attach(run, conversation, kept, wishes)
        following = next((wish for wish in wishes if wish.end > done), None)
        if following is not None and not run.job.alone:
            admission = self._await(run, following, source)
            if admission is not None:
                return admission
        if not self._make_room(self._own(run, done), source):
            return Admission.NO_ROOM
        return self._attach(run, source, done, wishes)

    def leave(self, run: Run, faulty: bool = False, *, blames_source: bool | None = None) -> None:
        """Takes a run's pages back.

        Args:
            faulty: They are scrubbed in any case.
            blames_source: The stored context that it read is not used again; None: if it is faulty.
        """
        self._stop_waiting(run)
        source = run.source if isinstance(run.source, Link) else None
        if run.job.keep and not faulty and not (source is not None and source.retired):
            self._keep(run, source)  # not where its beginning is suspected: that would be read again
        freed = self._allocator.release(run.job.channel)
        written = set(run.table[: run.written_pages].tolist())
        if run.job.scrub or faulty:
            self.scrubs.extend(page for page in freed if page in written)
        if source is not None:
            if faulty if blames_source is None else blames_source:
                self._shelf.retire(source)
            self._shelf.release(source)
            self._supersede(source)

    def fills(self) -> list[Run]:
        """Runs that compute links, not finished yet."""
        return [link.fill for link in self._shelf if link.fill is not None and not link.ready]

    def drop_fill(self, run: Run) -> None:
        """Forgets a link whose computation failed; from now on every run computes it for itself."""
        for link in self._shelf:
            if link.fill is run:
                self._shelf.drop(link)
                self._faulty[link.key] = None
                if len(self._faulty) > MOST_FAULTY:
                    del self._faulty[next(iter(self._faulty))]

    def check(self) -> None:
        """Raises if a page is lost, or in two tables, or a link's table names a page that is not its own."""
        self._allocator.check_integrity()
        for link in self._shelf:
            held = set(self._allocator.held(link.owner))
            if held != set(link.table.tolist()):
                raise IntegrityError(f"link {link.owner}: its table and its pages differ")

    # -- what is there ---------------------------------------------------------------
    def _wishes(self, run: Run) -> list[_Wish]:
        """Declared links of a run that can be stored, ends ascending.

        The last prompt token is always the run's own: its logits are wanted.
        """
        job, last = run.job, len(run.job.prompt) - 1
        wishes: list[_Wish] = []
        if self._limits.share_prefix and (end := min(job.prefix, last)) > 0:
            wishes.append(_Wish(Kind.SYSTEM, (None, job.prompt[:end].tobytes()), end))
        for kind, wanted in job.parts:
            end = min(wanted, last)
            if end > (wishes[-1].end if wishes else 0):
                wishes.append(_Wish(kind, (_scope(job), job.prompt[:end].tobytes()), end))
        wishes = [wish for wish in wishes if wish.key not in self._faulty]
        while wishes and not self._fit(wishes, run):
            wishes.pop()
        return wishes

    def _fit(self, wishes: list[_Wish], run: Run) -> bool:
        """Whether links and run have room side by side in an empty store."""
        links, below = 0, 0
        for end in self._ends(wishes):
            links += pages_for(end) - below
            below = 0 if self._limits.copies else end // PAGE_SIZE
        cap = self._limits.context_pages or self._pages
        return links <= cap and links + self._own(run, wishes[-1].end) <= self._pages

    def _ends(self, wishes: list[_Wish]) -> list[int]:
        """Where the links of a chain end, ascending. One that is stored stands on what its opener declared, which may
        be cut in other places."""
        ends: list[int] = []
        for wish in wishes:
            link = self._shelf.find(wish.key)
            ends = [*ends, wish.end] if link is None else [one.end for one in link.chain()][::-1]
        return ends

    def _deepest(self, wishes: list[_Wish]) -> tuple[int, Link | None]:
        """The longest declared link that is ready."""
        for wish in reversed(wishes):
            link = self._shelf.find(wish.key)
            if link is not None and link.ready:
                return wish.end, link
        return 0, None

    def _conversation(self, run: Run) -> tuple[int, Link | None]:
        """The kept conversation that goes furthest along a prompt."""
        if not run.job.keep:
            return 0, None
        if run.digests is None:
            run.digests = page_digests(run.job.prompt[:-1])
        return self._shelf.kept(_scope(run.job), run.job.prompt, run.digests)

    # -- what is given ---------------------------------------------------------------
    def _need(self, limit: int) -> int:
        """Pages of a run. The last token of an answer is never computed, so it needs no position."""
        return pages_for(self._limits.max_context if self._limits.unified else limit - 1)

    def _own(self, run: Run, done: int) -> int:
        """Pages that a run needs for itself when ``done`` positions are there."""
        return self._need(run.limit) - (0 if self._limits.copies else done // PAGE_SIZE)

    def _attach(self, run: Run, source: Link | None, done: int, wishes: list[_Wish]) -> Admission:
        run.table = self._table_on(run.job.channel, source, done, self._own(run, done))
        run.done = run.reused = done
        if source is not None:
            source.readers += 1
            run.source = source
            self._shelf.touch(source)
        self._count(run, source, done, wishes)
        self._stop_waiting(run)
        return Admission.ADMITTED

    def _table_on(self, owner: Hashable, source: Link | None, done: int, own: int) -> Int32Array:
        """A table of ``own`` new pages that stands on the first ``done`` positions of a link."""
        full = done // PAGE_SIZE
        stored = source.table[: pages_for(done)].tolist() if source else []
        shared = [] if self._limits.copies else stored[:full]
        if shared:
            self._allocator.share(owner, shared)
        given = self._allocator.allocate(owner, own)
        self.copies += zip(stored[len(shared) :], given, strict=False)
        return np.array([*shared, *given], dtype=np.int32)

    def _await(self, run: Run, wish: _Wish, source: Link | None) -> Admission | None:
        """Waits for a link that is being computed, or has it computed; None if there is no room to store it."""
        link = self._shelf.find(wish.key)
        if link is None:
            need = pages_for(wish.end) - (0 if self._limits.copies or source is None else source.end // PAGE_SIZE)
            if not self._shelf_room(need, source):
                return None
            if not self._make_room(need, source):
                return Admission.NO_ROOM
            link = self._open(run, wish, source, need)
        if run.awaited is not link:
            self._stop_waiting(run)
        link.waiting.add(run.job.channel)
        run.awaited = link
        return Admission.PREFIX_COMES

    def _open(self, run: Run, wish: _Wish, source: Link | None, need: int) -> Link:
        """Starts the computation of a link, on top of the one before it."""
        self._made += 1
        tokens = run.job.prompt[: wish.end].copy()
        job = Job(-self._made, ("link", self._made), tokens, 0, priority=run.job.priority)
        fill = Run(job, -1, wish.end, 0)
        fill.done = source.end if source else 0
        fill.table = self._table_on(fill.job.channel, source, fill.done, need)
        fill.parked = False
        link = Link(fill.job.channel, wish.kind, wish.key, tokens, fill.table, source, fill)
        run.opened.append(link)
        self._shelf.add(link)
        return link

    def _stop_waiting(self, run: Run) -> None:
        """What nobody waits for any more is not computed."""
        link = run.awaited
        if isinstance(link, Link):
            run.awaited = None
            link.waiting.discard(run.job.channel)
            if not link.waiting and not link.ready and not link.retired and self._shelf.find(link.key) is link:
                self._shelf.drop(link)

    def _count(self, run: Run, source: Link | None, done: int, wishes: list[_Wish]) -> None:
        """Hits and misses of a run that starts. Whoever had a link computed has missed it."""
        for wish in wishes:
            link = self._shelf.find(wish.key)
            mine = link is not None and link in run.opened
            self._lookups[wish.kind, "hit" if wish.end <= done and not mine else "miss"] += 1
        if run.job.keep:
            found = source is not None and source.kind is Kind.CONVERSATION
            self._lookups[Kind.CONVERSATION, "hit" if found else "miss"] += 1

    # -- room ------------------------------------------------------------------------
    def _make_room(self, need: int, *keep: Link | None) -> bool:
        """Whether ``need`` pages are free, after dropping idle links if that helps."""
        while self._allocator.available < need:
            if not self._shelf.evict(*keep):
                return False
        return True

    def _shelf_room(self, need: int, keep: Link | None) -> bool:
        """Whether one more link of ``need`` pages may be stored, after dropping idle ones if that helps."""
        cap = self._limits.context_pages or self._pages
        while len(self._shelf) >= self._limits.links or self._shelf.pages + need > cap:
            if not self._shelf.evict(keep):
                return False
        return True

    def _keep(self, run: Run, source: Link | None) -> None:
        """Keeps the full pages that a run computed, as the beginning of a next prompt."""
        full = run.done // PAGE_SIZE
        tokens = run.known(full * PAGE_SIZE).copy()
        digests = page_digests(tokens)
        scope = _scope(run.job)
        known, link = self._shelf.kept(scope, tokens, digests)
        if link is not None and known == len(tokens):
            self._shelf.touch(link)
            return
        fresh = full if self._limits.copies else full - run.reused // PAGE_SIZE
        if len(tokens) <= run.reused or not self._shelf_room(fresh, source):
            return
        self._made += 1
        owner, table = -self._made, run.table[:full].copy()
        self._allocator.share(owner, table.tolist())
        kept = Link(owner, Kind.CONVERSATION, (scope, b""), tokens, table, source)
        self._shelf.add(kept, digests)

    def _supersede(self, source: Link) -> None:
        """Drops a conversation that a longer one has gone on from: that one holds all of it."""
        if source.kind is not Kind.CONVERSATION or source.retired or source.readers != 1:
            return
        for link in self._shelf:
            if link.parent is source and np.array_equal(link.tokens[: source.end], source.tokens):
                link.parent = source.parent
                if source.parent is not None:
                    source.parent.readers += 1
                source.readers = 0
                self._shelf.drop(source)
                return


def _scope(job: Job) -> Hashable:
    return ("tenant", job.tenant)


def _of_pool(job: Job) -> str:
    """How many of a prompt's tokens are its context pool's, for people."""
    ends = [part.end for part in job.parts if part.kind is Kind.POOL]
    return f", {ends[0] - job.prefix} of them of its context pool" if ends else ""
