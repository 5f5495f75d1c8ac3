"""Which rows go into the next forward. Pure: no clock, no thread, no model.

Runs join and leave between any two forwards. Each forward:

1. Runs that may start get their pages, first come first served; a priority
   is a handicap of so many arrivals.
2. Seats go to those that were served least recently, at most
   ``channels_per_forward`` of them, so that nobody starves when more are live.
   A priority is a handicap of so many forwards.
3. A run that must be alone has the forward to itself.
4. Decoding runs take one row each; prompts share the rest of the row budget
   chunk by chunk, so a long prompt never stalls the others' decoding.

Runs of the long lane (``Job.long``) never delay the others: their prompts add
a small share of rows to a forward that others take part in, and a smaller
chunk than the budget to one of their own; and one that waits for pages holds
back only its own kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from inference_svc.channels import Job, Phase, Run
from inference_svc.memory import Admission, Memory
from inference_svc.rows import Pack, Span, pages_for
from kev.bus.messages import BACKGROUND, EXPRESS

HANDICAPS = (0, 4, 16)
"""By priority: who counts as served, or as arrived, so much later. Time makes up for it, so nobody starves."""
NORMAL = 1
PRIORITIES = {EXPRESS.source: 0, BACKGROUND.source: 2}
"""Priority of the questions of a lane; all other lanes are normal."""
LEAST_LONG_ROWS = 1
"""Rows that a long prompt gets in any forward it takes part in."""


@dataclass(frozen=True, slots=True)
class ForwardLimits:
    """The size of one forward.

    Attributes:
        channels: Most channels that take part.
        rows: Most rows.
        long_rows: Most rows of long prompts.
        long_share: Most rows of long prompts beside others, as a share of the others' rows (but ``LEAST_LONG_ROWS``).
        long_pages: Most pages that the long runs hold together, unless there is only one.
    """

    channels: int
    rows: int
    long_rows: int = 1 << 30
    long_share: float = 1.0
    long_pages: int = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A run's part in a forward.

    Attributes:
        count: Its next so many tokens are computed.
        wanted: 1 when a new token comes of it, else 0.
        of_prompt: Whether they are a prompt's tokens.
    """

    run: Run
    count: int
    wanted: int
    of_prompt: bool = False

    def span(self) -> Span:
        """The rows, for the backend."""
        run = self.run
        return Span(run.job.channel, run.tokens(self.count), run.done, run.table, self.wanted)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One forward. ``number`` counts from 1."""

    number: int
    steps: tuple[Step, ...]

    def pack(self) -> Pack:
        """The rows of all steps, in their order."""
        return Pack.of([step.span() for step in self.steps])


class Scheduler:
    """The runs of one worker."""

    def __init__(self, limits: ForwardLimits, memory: Memory) -> None:
        self._limits = limits
        self._memory = memory
        self._runs: dict[int, Run] = {}
        self._arrivals = 0
        self._number = 0

    def __len__(self) -> int:
        return len(self._runs)

    def join(self, job: Job) -> Run:
        """Seats a slot; it takes part from the next plan on, as soon as there is room.

        Raises:
            TooBig: it can never run here.
            ValueError: its channel is taken.
        """
        if job.channel in self._runs:
            raise ValueError(f"channel {job.channel} is taken")
        run = Run(job, self._arrivals, self._memory.limit_of(job), self._number)
        self._arrivals += 1
        self._runs[job.channel] = run
        return run

    def leave(self, run: Run, faulty: bool = False, *, blames_source: bool | None = None) -> None:
        """Frees the run's channel and pages, whatever it was doing. See ``Memory.leave``."""
        if self._runs.get(run.job.channel) is run:
            del self._runs[run.job.channel]
            run.left = True
            self._memory.leave(run, faulty, blames_source=blames_source)

    def plan(self) -> Plan | None:
        """The next forward; None when nothing can run. Nothing has advanced until ``advance``."""
        self._admit()
        ready = [run for run in self._runs.values() if not run.parked] + self._memory.fills()
        ready.sort(key=lambda run: (run.last + HANDICAPS[run.job.priority], run.arrival))
        if not ready:
            return None
        together = (run for run in ready if not run.job.alone)
        seated = ready[:1] if ready[0].job.alone else self._seats(together)
        return Plan(self._number + 1, tuple(self._steps(seated)))

    def advance(self, plan: Plan) -> None:
        """Takes note that a forward was computed. The caller then appends the new tokens, or lets runs leave."""
        self._number = plan.number
        for step in plan.steps:
            step.run.done += step.count
            step.run.last = plan.number
            step.run.forwards += 1

    def phases(self) -> Counter[Phase]:
        """How many runs stand where."""
        return Counter(run.phase for run in self._runs.values())

    def _admit(self) -> None:
        """Lets runs start in the order of their arrival. One that finds no room holds back those of its lane behind
        it."""
        started: Counter[Hashable] = Counter()
        room = {False: True, True: True}
        for run in sorted(self._runs.values(), key=_in_line):
            if not run.job.alone:
                started[run.job.group] += 1
            if run.admitted or (not run.job.alone and started[run.job.group] > run.job.max_parallel):
                continue
            lane = run.job.long
            room[lane] = room[lane] and self._within_share(run)
            if room[lane] and (admission := self._memory.admit(run)) is not Admission.PREFIX_COMES:
                room[lane] = admission is Admission.ADMITTED
                run.parked = not room[lane]

    def _within_share(self, run: Run) -> bool:
        """Whether a run may have pages beside those that the long ones have already."""
        if not run.job.long:
            return True
        held = sum(len(other.table) for other in self._runs.values() if other.job.long and other.admitted)
        return held == 0 or held + pages_for(run.limit) <= self._limits.long_pages

    def _seats(self, ready: Iterable[Run]) -> list[Run]:
        """Those who take part: at least one row each, and no more prompts than the row budget can feed."""
        seated: list[Run] = []
        prompt_rows = 0
        for run in ready:
            if len(seated) == min(self._limits.channels, self._limits.rows):
                break
            if run.prefilling:
                if prompt_rows >= self._limits.rows:
                    continue
                prompt_rows += min(run.pending, self._limits.long_rows) if run.job.long else run.pending
            seated.append(run)
        return seated

    def _steps(self, seated: list[Run]) -> Iterable[Step]:
        left, long_left = self._limits.rows, self._long_rows(seated)
        for run in sorted(seated, key=lambda run: (run.prefilling, run.prefilling and not run.job.long)):
            slow = run.prefilling and run.job.long
            count = min(run.pending, left, long_left) if slow else min(run.pending, left)
            if count:
                left -= count
                long_left -= count if slow else 0
                yield Step(run, count, int(count == run.pending and run.job.max_tokens > 0), run.prefilling)

    def _long_rows(self, seated: list[Run]) -> int:
        """Rows that long prompts may have in a forward of these runs."""
        limits = self._limits
        others = min(limits.rows, sum(run.pending for run in seated if not run.job.long))
        share = max(LEAST_LONG_ROWS, int(limits.long_share * others)) if others else limits.long_rows
        return min(limits.long_rows, share)


def _in_line(run: Run) -> tuple[bool, int]:
    """Who may start first. Those that have started count first towards their request's number."""
    return not run.admitted, run.arrival + HANDICAPS[run.job.priority]
