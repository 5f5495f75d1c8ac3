"""Bounded lanes with acknowledgement: pure, time is passed in."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kev.bus.messages import Lane, QueuedQuestion

Key = tuple[str, int]
T = TypeVar("T")


@dataclass(slots=True)
class Entry:
    """A question in the system. ``holder`` is the number of its last delivery.

    ``traceparent`` names the span that put it in.
    """

    question: QueuedQuestion
    number: int
    expires_ms: int
    holder: int = 0
    held_until: float = 0.0
    gone: bool = False
    traceparent: str = ""


@dataclass(slots=True)
class Source:
    """All lanes of one queue: a worker's or a shared one, or the long one beside it."""

    waiting: deque[Entry] = field(default_factory=deque)
    again: deque[Entry] = field(default_factory=deque)
    held: dict[int, Entry] = field(default_factory=dict)


class Queues:
    """The state of all lanes. Seconds are monotonic, milliseconds are Unix time."""

    def __init__(
        self, bound: int, shared_bound: int, *, ack_wait_s: float, dedupe_window_s: float, grace_s: float
    ) -> None:
        self._bound = bound
        self._shared_bound = shared_bound
        self._ack_wait_s = ack_wait_s
        self._window_s = dedupe_window_s
        self._grace_ms = int(grace_s * 1000)
        self._sources: dict[str, Source] = {}
        self._depths: Counter[Lane] = Counter()
        self._accepted: Counter[int] = Counter()
        self._seen: dict[Key, float] = {}
        self._expiries: list[tuple[int, int, Entry]] = []
        self._numbers = 0

    def put(
        self, questions: Sequence[QueuedQuestion], now: float, now_ms: int, traceparent: str = ""
    ) -> frozenset[Lane]:
        """Puts in what is not in yet, all or nothing; returns the lanes that were full."""
        self._tidy(now, now_ms)
        new = [question for question in questions if (question.rid, question.slot) not in self._seen]
        wanted = Counter(question.lane for question in new)
        full = frozenset(lane for lane, count in wanted.items() if self._depths[lane] + count > self._room(lane))
        if not full:
            for question in new:
                self._add(question, now, traceparent)
        return full

    def known(self, rid: str, slots: Sequence[int], now: float, now_ms: int) -> frozenset[int]:
        """Slots of a request that were put in, and are not forgotten."""
        self._tidy(now, now_ms)
        return frozenset(slot for slot in slots if (rid, slot) in self._seen)

    def take(self, source: str, now: float, now_ms: int) -> Entry | None:
        """Delivers the next question of a source: what came back first, then the oldest."""
        self._tidy(now, now_ms)
        queues = self._sources.get(source)
        if queues is None:
            return None
        self._reclaim(queues, now)
        entry = self._next(queues)
        if entry is not None:
            entry.holder += 1
            entry.held_until = now + self._ack_wait_s
            queues.held[entry.number] = entry
        return entry

    def waiting(self, source: str) -> int:
        """Questions that may be taken now, and some that have ended meanwhile."""
        queues = self._sources[source]
        return len(queues.again) + len(queues.waiting)

    def holds(self, entry: Entry, holder: int, now: float) -> bool:
        """Whether delivery ``holder`` of the entry may still answer for it."""
        held = self._sources[entry.question.lane.queue].held.get(entry.number)
        return held is entry and entry.holder == holder and now < entry.held_until

    def ack(self, entry: Entry) -> None:
        """Finishes a held entry."""
        self._remove(entry)

    def progress(self, entry: Entry, now: float) -> None:
        """Restarts a held entry's ack wait."""
        entry.held_until = now + self._ack_wait_s

    def give_back(self, entry: Entry) -> None:
        """Returns a held entry, for the next take."""
        queues = self._sources[entry.question.lane.queue]
        del queues.held[entry.number]
        queues.again.append(entry)

    def depths(self, now: float, now_ms: int) -> dict[Lane, int]:
        """Questions per lane that is not empty."""
        self._tidy(now, now_ms)
        return {lane: depth for lane, depth in self._depths.items() if depth}

    def oldest_s(self, now_ms: int) -> float:
        """Age of the oldest question in the system; 0 when there is none."""
        return max(0, now_ms - min(self._accepted)) / 1000 if self._accepted else 0.0

    def _room(self, lane: Lane) -> int:
        return self._shared_bound if lane.shared else self._bound

    def _add(self, question: QueuedQuestion, now: float, traceparent: str) -> None:
        self._numbers += 1
        entry = Entry(question, self._numbers, question.deadline_ms + self._grace_ms, traceparent=traceparent)
        self._sources.setdefault(question.lane.queue, Source()).waiting.append(entry)
        self._depths[question.lane] += 1
        self._accepted[question.accepted_ms] += 1
        self._seen[question.rid, question.slot] = now
        heapq.heappush(self._expiries, (entry.expires_ms, entry.number, entry))

    def _next(self, queues: Source) -> Entry | None:
        for line in (queues.again, queues.waiting):
            while line:
                entry = line.popleft()
                if not entry.gone:
                    return entry
        return None

    def _reclaim(self, queues: Source, now: float) -> None:
        """Lines up the held entries whose ack wait has passed, the longest overdue first."""
        overdue = [entry for entry in queues.held.values() if entry.held_until <= now]
        for entry in sorted(overdue, key=lambda entry: entry.held_until):
            del queues.held[entry.number]
            queues.again.append(entry)

    def _remove(self, entry: Entry) -> None:
        if entry.gone:
            return
        entry.gone = True
        lane = entry.question.lane
        self._sources[lane.queue].held.pop(entry.number, None)
        _take_one(self._depths, lane)
        _take_one(self._accepted, entry.question.accepted_ms)

    def _tidy(self, now: float, now_ms: int) -> None:
        """Drops expired questions and forgets old ones. An acknowledged entry
        stays in the heap until its time, so that nothing has to be searched."""
        while self._expiries and self._expiries[0][0] <= now_ms:
            self._remove(heapq.heappop(self._expiries)[2])
        while self._seen:
            key = next(iter(self._seen))
            if self._seen[key] > now - self._window_s:
                break
            del self._seen[key]


def _take_one(counts: Counter[T], key: T) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
