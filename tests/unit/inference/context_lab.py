"""Questions with context chains, fed to a desk turn by turn, and the books checked after every forward."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from inference_fakes import EOS, HandClock, letters

from inference_svc.channels import Job, Kind, Part, Run
from inference_svc.desk import Desk
from inference_svc.memory import Memory
from inference_svc.report import End, Order
from inference_svc.rows import PAGE_SIZE
from inference_svc.sample import Sampler
from kev.domain.outcome import FinishReason
from kev.domain.question import Sampling

Logits = Callable[[tuple[int, ...]], Any]
FOREVER = float("inf")
GREEDY = Sampling()


@dataclass(frozen=True)
class Ask:
    """One question, and what happens to it. ``chain`` is the lengths of system prompt, pool and batch prefix."""

    prompt: tuple[int, ...]
    chain: tuple[int, int, int] = (0, 0, 0)
    level: str = "strict"
    tenant: str = ""
    max_tokens: int = 4
    sampling: Sampling = GREEDY
    at: int = 0
    priority: int = 1
    group: int = 0
    max_parallel: int = 99
    alone: bool = False
    cancel_after: int | None = None
    expire_after: int | None = None

    @property
    def system(self) -> int:
        """Tokens that all may share."""
        return self.chain[0]

    def job(self, channel: int) -> Job:
        """As a worker makes it: what the level does not allow to be shared is not declared."""
        system, pool, batch = self.chain
        parts = [Part(Kind.POOL, system + pool)] if self.level == "loose" and pool else []
        if self.level != "strict" and batch:
            parts.append(Part(Kind.BATCH, system + pool + batch))
        return Job(
            channel=channel,
            group=self.group,
            prompt=np.array(self.prompt, np.int32),
            max_tokens=self.max_tokens,
            prefix=system,
            max_parallel=self.max_parallel,
            alone=self.alone,
            scrub=self.level == "strict",
            parts=tuple(parts),
            tenant=self.tenant,
            keep=self.level == "loose",
            priority=self.priority,
        )


def naive_answer(ask: Ask, seed: int, logits: Logits, context: int) -> list[int]:
    """The answer's tokens: the whole text computed anew for each, no pages, no neighbours. ``EOS`` included."""
    tokens = list(ask.prompt)
    sampler = Sampler(ask.sampling, seed)
    while len(tokens) - len(ask.prompt) < ask.max_tokens and len(tokens) < context:
        tokens.append(sampler.pick(logits(tuple(tokens)), len(tokens) - len(ask.prompt)))
        if tokens[-1] == EOS:
            break
    return tokens[len(ask.prompt) :]


@dataclass
class World:
    """Feeds a desk, as a worker does."""

    desk: Desk
    memory: Memory
    clock: HandClock
    channels: int = 6
    copies: bool = False
    rows: int = 24
    seats_in_pack: int = 4
    waiting: list[tuple[int, Ask]] = field(default_factory=list)
    live: dict[int, tuple[Ask, int, int]] = field(default_factory=dict)
    ends: dict[int, End] = field(default_factory=dict)
    texts: defaultdict[int, str] = field(default_factory=lambda: defaultdict(str))
    number: int = 0
    prompt_rows: int = 0
    lookups: Counter[tuple[Kind, str]] = field(default_factory=Counter)
    evicted: Counter[Kind] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.seats = list(range(self.channels))

    def run(self, asks: Sequence[Ask], most: int = 3000) -> dict[int, End]:
        """All of them, to their ends."""
        first = len(self.ends)
        self.waiting += list(enumerate(asks, first))
        begun = self.number
        while self.waiting or self.live:
            self.turn()
            assert self.number - begun < most, "somebody starves"
        self.desk.check()
        return {ticket - first: end for ticket, end in self.ends.items() if ticket >= first}

    def turn(self) -> None:
        for ticket, ask in [item for item in self.waiting if item[1].at <= self.number]:
            if self.seats:
                self._join(ticket, ask)
        for ticket, (ask, _, begun) in self.live.items():
            if ask.cancel_after is not None and self.number - begun >= ask.cancel_after:
                self.desk.end(ticket, FinishReason.CANCELLED)
        self.clock.now += 1
        self.number += 1
        self.desk.expire()
        plan = self.desk.plan()
        if plan is not None:
            assert sum(step.count for step in plan.steps) <= self.rows
            assert len(plan.steps) <= self.seats_in_pack
            self.prompt_rows += sum(step.count for step in plan.steps if step.of_prompt)
            self.check_tables()
            self.desk.run(plan)
        self._read(self.desk.report(plan, 0.0))
        self.memory.check()

    def check_tables(self) -> None:
        """A page in two tables is in the same place of both, full in both, and of one tenant or the deployment's."""
        places: dict[int, list[tuple[int, int, int, Hashable]]] = defaultdict(list)
        for run, tenant, system in self._tables():
            for index, page in enumerate(run.table.tolist()):
                places[page].append((index, run.done, system, tenant))
        for page, seen in places.items():
            if len(seen) == 1:
                continue
            assert not self.copies, f"page {page} is in two tables"
            assert len({index for index, *_ in seen}) == 1
            end = (seen[0][0] + 1) * PAGE_SIZE
            assert all(done >= end for _, done, _, _ in seen), "a page that somebody still writes is read by another"
            if any(end > system for _, _, system, _ in seen):
                assert len({tenant for *_, tenant in seen}) == 1, "two tenants share a page"

    def _tables(self) -> list[tuple[Run, Hashable, int]]:
        """Every table with its owner's tenant, and how many of its positions are the deployment's."""
        found: list[tuple[Any, Hashable, int]] = [
            (run, ("tenant", run.job.tenant), run.job.prefix) for run in self.desk._scheduler._runs.values()
        ]
        for link in self.memory._shelf:
            done = link.end if link.fill is None else link.fill.done
            system = next((one.end for one in link.chain() if one.kind is Kind.SYSTEM), 0)
            found.append((_Table(link.table, done), link.key[0], system))
        return found

    def _join(self, ticket: int, ask: Ask) -> None:
        self.waiting.remove((ticket, ask))
        channel = self.seats.pop()
        deadline = self.clock.now + ask.expire_after if ask.expire_after is not None else FOREVER
        self.live[ticket] = (ask, channel, self.number)
        self.desk.join(Order(ticket, ask.job(channel), ask.sampling, ticket, deadline))

    def _read(self, report: Any) -> None:
        self.lookups.update(report.lookups)
        self.evicted.update(report.evicted)
        for text in report.texts:
            assert text.offset == len(self.texts[text.ticket])
            self.texts[text.ticket] += text.text
        for end in report.ends:
            assert end.ticket not in self.ends
            self.ends[end.ticket] = end
            self.seats.append(self.live.pop(end.ticket)[1])


@dataclass
class _Table:
    table: Any
    done: int


def compare(end: End, streamed: str, naive: list[int]) -> None:
    """A question's end against its naive answer; one that was stopped has a beginning of it."""
    assert streamed == end.text
    if end.finish in (FinishReason.CANCELLED, FinishReason.TIMEOUT):
        assert letters(naive).startswith(end.text)
        assert end.tokens <= len(naive)
        return
    assert end.text == letters(naive)
    assert end.tokens == len(naive)
    assert end.finish is (FinishReason.STOP if naive[-1] == EOS else FinishReason.LENGTH)
