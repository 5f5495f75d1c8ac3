"""Who gets pages: admission by real need, and prefixes that are stored once.

A run gets all pages that it can come to need before it starts, so a run that
has started never waits for memory. A shared prefix is filled once by a run of
its own; its full pages are then read by all, its partial tail is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from inference_svc.channels import Job, Run
from inference_svc.pages import PageAllocator
from inference_svc.rows import PAGE_SIZE, Int32Array, pages_for


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
        share_prefix: Whether prefixes are stored once.
        prefixes: Most prefixes kept.
    """

    max_context: int
    unified: bool = False
    share_prefix: bool = True
    prefixes: int = 8


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
        self._prefixes: dict[bytes, _Prefix] = {}
        self._unshared: set[bytes] = set()
        self._made = 0
        self.scrubs: list[int] = []
        self.copies: list[tuple[int, int]] = []

    @property
    def available(self) -> int:
        """Free pages."""
        return self._allocator.available

    @property
    def prefix_pages(self) -> int:
        """Pages of stored prefixes."""
        return sum(len(prefix.run.table) for prefix in self._prefixes.values())

    def limit_of(self, job: Job) -> int:
        """Most tokens of prompt and answer together.

        Raises:
            TooBig: there is no room for the prompt and one token, or the store has too few pages.
        """
        prompt, context = len(job.prompt), self._limits.max_context
        if prompt + 1 > context:
            raise TooBig(f"the prompt has {prompt} tokens; a channel holds {context}, the answer included")
        limit = min(prompt + job.max_tokens, context)
        if (need := self._need(limit)) > self._pages:
            raise TooBig(f"prompt and answer need {need} KV pages; the store has {self._pages}")
        return limit

    def admit(self, run: Run) -> Admission:
        """Gives a run its pages, if they are there. With a prefix to share, ``done`` starts after it."""
        count = self._shareable(run)
        if count == 0:
            return self._admit_with(run, None)
        key = run.job.prompt[:count].tobytes()
        prefix = self._prefixes.get(key)
        if prefix is None:
            return self._open(key, run.job.prompt[:count])
        return self._admit_with(run, prefix) if prefix.ready else Admission.PREFIX_COMES

    def leave(self, run: Run, faulty: bool = False) -> None:
        """Takes a run's pages back. A faulty run's pages are scrubbed in any case, and its prefix is not used again."""
        freed = self._allocator.release(run.job.channel)
        written = set(run.table[: run.written_pages].tolist())
        if run.job.scrub or faulty:
            self.scrubs.extend(page for page in freed if page in written)
        if isinstance(run.source, _Prefix):
            run.source.readers -= 1
            self._retire(run.source, faulty)

    def fills(self) -> list[Run]:
        """Runs that compute prefixes, not finished yet."""
        return [prefix.run for prefix in self._prefixes.values() if not prefix.ready]

    def drop_fill(self, run: Run) -> None:
        """Forgets a prefix whose computation failed; from now on every run computes it for itself."""
        key = next(key for key, prefix in self._prefixes.items() if prefix.run is run)
        self._drop(key)
        self._unshared.add(key)

    def check(self) -> None:
        """Raises if a page is lost, or in two tables."""
        self._allocator.check_integrity()

    def _need(self, limit: int) -> int:
        """Pages of a run. The last token of an answer is never computed, so it needs no position."""
        return pages_for(self._limits.max_context if self._limits.unified else limit - 1)

    def _shareable(self, run: Run) -> int:
        """Prefix tokens to share; the last prompt token is always the run's own, its logits are wanted."""
        count = min(run.job.prefix, len(run.job.prompt) - 1)
        full = count // PAGE_SIZE
        if not self._limits.share_prefix or count < 1 or run.job.prompt[:count].tobytes() in self._unshared:
            return 0
        fits = pages_for(count) + self._need(run.limit) - full <= self._pages
        return count if fits else 0

    def _open(self, key: bytes, tokens: Int32Array) -> Admission:
        """Starts the computation of a prefix."""
        need = pages_for(len(tokens))
        if not self._make_room(need, keep=key, prefixes=1):
            return Admission.NO_ROOM
        self._made += 1
        run = Run(Job(-self._made, ("prefix", self._made), tokens, 0), -1, len(tokens), 0)
        run.table = self._table(self._allocator.allocate(run.job.channel, need))
        run.parked = False
        self._prefixes[key] = _Prefix(run)
        return Admission.PREFIX_COMES

    def _admit_with(self, run: Run, prefix: _Prefix | None) -> Admission:
        count = len(prefix.run.job.prompt) if prefix else 0
        shared = prefix.run.table[: count // PAGE_SIZE].tolist() if prefix else []
        need = self._need(run.limit) - len(shared)
        key = run.job.prompt[:count].tobytes()
        if not self._make_room(need, keep=key):
            return Admission.NO_ROOM
        if prefix:
            if shared:
                self._allocator.share(run.job.channel, shared)
            prefix.readers += 1
            run.source = prefix
        own = self._allocator.allocate(run.job.channel, need)
        if prefix and count % PAGE_SIZE:
            self.copies.append((int(prefix.run.table[count // PAGE_SIZE]), own[0]))
        run.table = self._table([*shared, *own])
        run.done = count
        return Admission.ADMITTED

    def _make_room(self, need: int, keep: bytes, prefixes: int = 0) -> bool:
        """Whether ``need`` pages and ``prefixes`` places are free, after dropping idle prefixes if that helps."""
        idle = [key for key, prefix in self._prefixes.items() if prefix.idle and key != keep]
        while self._allocator.available < need or len(self._prefixes) + prefixes > self._limits.prefixes:
            if not idle:
                return False
            self._drop(idle.pop(0))
        return True

    def _drop(self, key: bytes) -> None:
        self._free(self._prefixes.pop(key))

    def _retire(self, prefix: _Prefix, faulty: bool) -> None:
        """Takes a prefix out of use if a reader found it faulty, and frees it after its last reader."""
        if faulty and not prefix.retired:
            prefix.retired = True
            self._prefixes = {key: one for key, one in self._prefixes.items() if one is not prefix}
        if prefix.retired and prefix.readers == 0:
            self._free(prefix)

    def _free(self, prefix: _Prefix) -> None:
        self.scrubs.extend(self._allocator.release(prefix.run.job.channel))

    @staticmethod
    def _table(pages: list[int]) -> Int32Array:
        return np.array(pages, dtype=np.int32)


@dataclass(slots=True)
class _Prefix:
    """A stored prefix: the run that computes it, how many runs read it, and whether it is out of use."""

    run: Run
    readers: int = 0
    retired: bool = False

    @property
    def ready(self) -> bool:
        return self.run.pending == 0

    @property
    def idle(self) -> bool:
        return self.ready and self.readers == 0
