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
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from inference_svc.channels import Job, Phase, Run
from inference_svc.memory import Admission, Memory
from inference_svc.rows import Pack, Span
from kev.bus.messages import BACKGROUND, EXPRESS

HANDICAPS = (0, 4, 16)
"""By priority: who counts as served, or as arrived, so much later. Time makes up for it, so nobody starves."""
NORMAL = 1
PRIORITIES = {EXPRESS.source: 0, BACKGROUND.source: 2}
"""Priority of the questions of a lane; all other lanes are normal."""


@dataclass(frozen=True, slots=True)
class ForwardLimits:
    """The size of one forward.

    Attributes:
        channels: Most channels that take part.
        rows: Most rows.
    """

    channels: int
    rows: int


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

    def leave(self, run: Run, faulty: bool = False) -> None:
        """Frees the run's channel and pages, whatever it was doing. See ``Memory.leave``."""
        if self._runs.get(run.job.channel) is run:
            del self._runs[run.job.channel]
            run.left = True
            self._memory.leave(run, faulty)

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
        """Lets runs start in the order of their arrival. One that finds no room holds back those behind it."""
        started: Counter[Hashable] = Counter()
        room = True
        for run in sorted(self._runs.values(), key=_in_line):
            if not run.job.alone:
                started[run.job.group] += 1
            if run.admitted or (not run.job.alone and started[run.job.group] > run.job.max_parallel):
                continue
            if room and (admission := self._memory.admit(run)) is not Admission.PREFIX_COMES:
                room = admission is Admission.ADMITTED
                run.parked = not room

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
                prompt_rows += run.pending
            seated.append(run)
        return seated

    def _steps(self, seated: list[Run]) -> Iterable[Step]:
        left = self._limits.rows
        for run in sorted(seated, key=lambda run: run.prefilling):
            count = min(run.pending, left)
            if count:
                left -= count
                yield Step(run, count, int(count == run.pending and run.job.max_tokens > 0), run.prefilling)


def _in_line(run: Run) -> tuple[bool, int]:
    """Who may start first. Those that have started count first towards their request's number."""
    return not run.admitted, run.arrival + HANDICAPS[run.job.priority]
