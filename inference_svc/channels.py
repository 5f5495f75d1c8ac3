"""Channels: the seats of a worker, and a slot's life in one of them.

``ChannelPool`` says which seats are taken. ``Run`` is what happens in a taken
seat: prompt rows go in (``prefill``), then one token at a time (``decode``);
a run that may not take part yet is ``parked``.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from inference_svc.rows import Int32Array, pages_for


class Phase(StrEnum):
    """Where a channel stands."""

    FREE = "free"
    PARKED = "parked"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


class Kind(StrEnum):
    """What a stored beginning of prompts is, in the order in which they stand in a prompt."""

    SYSTEM = "system"
    POOL = "pool"
    BATCH = "batch"
    CONVERSATION = "conversation"


class Part(NamedTuple):
    """A part of a prompt that its tenant's runs may share; it ends before position ``end``."""

    kind: Kind
    end: int


class ChannelPool:
    """Which of the channels ``0 .. size - 1`` are taken.

    Args:
        long: The last so many are for long questions and no others. With 0, all are for all.
    """

    def __init__(self, size: int, long: int = 0) -> None:
        if not 0 <= long < size:
            raise ValueError("channel pool: at least one channel that is not for long questions")
        self.size = size
        self._first_long = size - long
        self._free = set(range(size))

    @property
    def free(self) -> int:
        """Number of free channels."""
        return len(self._free)

    def room(self, long: bool = False) -> int:
        """How many long questions, or such that are not, would find a channel."""
        return sum(self._fits(channel, long) for channel in self._free)

    def seat(self, preferred: int = -1, long: bool = False) -> int | None:
        """Takes the preferred channel if it is free, else the lowest free one that fits; None if all are taken."""
        fitting = [channel for channel in self._free if self._fits(channel, long)]
        if not fitting:
            return None
        channel = preferred if preferred in fitting else min(fitting)
        self._free.remove(channel)
        return channel

    def _fits(self, channel: int, long: bool) -> bool:
        return self._first_long == self.size or (channel >= self._first_long) is long

    def leave(self, channel: int) -> None:
        """Frees a channel.

        Raises:
            ValueError: the channel is not taken.
        """
        if channel in self._free or not 0 <= channel < self.size:
            raise ValueError(f"channel {channel} is not taken")
        self._free.add(channel)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """What the scheduler must know of a slot.

    Attributes:
        channel: Its seat; one job per seat.
        group: Its request: at most ``max_parallel`` jobs of a group are in one forward.
        prompt: Token ids, int32 ``[prompt_tokens]``, at least one.
        prefix: Leading tokens of the prompt that are the deployment's and may be shared by all, 0 for none.
        max_tokens: Most new tokens.
        alone: It gets forwards of its own.
        scrub: Its pages are zeroed when it leaves.
        long: It must not delay those that are not: its prompt goes in by smaller chunks beside them.
        parts: What stands behind ``prefix`` and may be shared by the tenant's runs, ends ascending.
        tenant: Whose it is. Runs of two tenants share nothing but ``prefix``.
        keep: Its pages are kept when it leaves, for the tenant's next prompt that begins alike; and it reads such.
        priority: 0 is first; see ``schedule.HANDICAPS``.
    """

    channel: int
    group: Hashable
    prompt: Int32Array
    max_tokens: int
    prefix: int = 0
    max_parallel: int = 1 << 30
    alone: bool = False
    scrub: bool = True
    long: bool = False
    parts: tuple[Part, ...] = ()
    tenant: Hashable = ""
    keep: bool = False
    priority: int = 1


class Run:
    """One slot's life in its channel.

    Attributes:
        arrival: Serial number; earlier runs are started first.
        limit: Most tokens of prompt and answer together.
        length: Tokens known so far: prompt, then answer.
        done: Positions computed so far; K and V of ``0 .. done - 1`` are stored.
        table: Page ids, empty until the run is admitted.
        last: Number of the last forward it took part in, or of the one before it came.
        forwards: Forwards it took part in.
        parked: It waits for pages, a prefix, or its request's other slots.
        left: It has left its channel.
        reused: Leading prompt tokens that were not computed for this run alone.
        source: The stored beginning that it reads; the memory's own record of it.
        awaited: The one that it waits for.
        opened: Those that were opened for it.
        digests: Of its prompt's full pages, where they were asked for.
    """

    def __init__(self, job: Job, arrival: int, limit: int, last: int) -> None:
        self.job = job
        self.arrival = arrival
        self.limit = limit
        self.length = len(job.prompt)
        self.done = 0
        self.table: Int32Array = np.empty(0, dtype=np.int32)
        self.last = last
        self.forwards = 0
        self.parked = True
        self.left = False
        self.reused = 0
        self.source: object | None = None
        self.awaited: object | None = None
        self.opened: list[object] = []
        self.digests: tuple[bytes, ...] | None = None
        self._tokens = np.zeros(limit, dtype=np.int32)
        self._tokens[: self.length] = job.prompt

    @property
    def phase(self) -> Phase:
        """Where the slot stands."""
        if self.left:
            return Phase.FINISHED
        if self.parked:
            return Phase.PARKED
        return Phase.PREFILL if self.prefilling else Phase.DECODE

    @property
    def prefilling(self) -> bool:
        """Whether prompt tokens are still to go in."""
        return self.done < len(self.job.prompt)

    @property
    def admitted(self) -> bool:
        """Whether it has its pages."""
        return len(self.table) > 0

    @property
    def pending(self) -> int:
        """Known tokens that are not computed yet: the rows it could use now."""
        return self.length - self.done

    @property
    def generated(self) -> int:
        """Tokens of the answer so far."""
        return self.length - len(self.job.prompt)

    @property
    def full(self) -> bool:
        """Whether no further token may be added: ``max_tokens`` or the context is used up."""
        return self.length >= self.limit

    @property
    def written_pages(self) -> int:
        """Leading pages of the table that hold something."""
        return min(pages_for(self.done), len(self.table))

    def known(self, count: int) -> Int32Array:
        """The first ``count`` tokens of prompt and answer, int32 ``[count]``."""
        return self._tokens[:count]

    def tokens(self, count: int) -> Int32Array:
        """The next ``count`` tokens to compute, int32 ``[count]``."""
        return self._tokens[self.done : self.done + count]

    def append(self, token: int) -> None:
        """Adds an answer token.

        Raises:
            ValueError: the run is full.
        """
        if self.full:
            raise ValueError("run: no room for another token")
        self._tokens[self.length] = token
        self.length += 1
