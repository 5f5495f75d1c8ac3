"""Questions through the worker's own scheduler, memory and sampler: packed as it packs, alone as it would be alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inference_svc.backends.passing import PassingBackend
from inference_svc.backends.port import Backend
from inference_svc.channels import Job, Part
from inference_svc.clock import Clock
from inference_svc.desk import Desk
from inference_svc.memory import Memory, MemoryLimits
from inference_svc.pages import PageAllocator
from inference_svc.report import End, Order
from inference_svc.rows import Float32Array, Pack
from inference_svc.schedule import ForwardLimits, Scheduler
from inference_svc.verify.cases import Case
from inference_svc.verify.marks import Mark, compare_marks, mark_of
from inference_svc.verify.report import Check
from kev.tokens.tokenizer import Tokenizer

FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a worker gives out memory and rows.

    Attributes:
        name: For the verdict.
        limits: Of the memory.
        rows: Row budget of a forward.
        channels: Most channels in a forward; fewer than questions, and they take turns.
        prefix: Leading tokens declared as shared by all.
        parts: What stands behind them and is shared, too: a context pool, a batch's prefix.
        again: Everything is asked a second time, as a conversation that goes on: what was kept is read then. The
            second answers are those compared.
    """

    name: str
    limits: MemoryLimits
    rows: int
    channels: int
    prefix: int = 0
    parts: tuple[Part, ...] = ()
    again: bool = False


@dataclass(frozen=True, slots=True)
class Served:
    """What came of a question: marks of its logits, and its end."""

    marks: tuple[Mark, ...]
    text: str
    tokens: int
    finish: str


class Recorder(PassingBackend):
    """A backend that also keeps the marks of all logits, by channel."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.marks: defaultdict[int, list[Mark]] = defaultdict(list)

    def forward(self, pack: Pack) -> Float32Array:
        """See ``Backend.forward``."""
        logits, ends = super().forward(pack), pack.result_offsets()
        for span, begin, end in zip(pack.spans, ends[:-1], ends[1:], strict=True):
            self.marks[span.channel] += [mark_of(row) for row in logits[begin:end]]
        return logits


def serve(backend: Backend, tokenizer: Tokenizer, cases: Sequence[Case], layout: Layout) -> list[Served]:
    """Runs questions together from their arrival to their end.

    Raises:
        RuntimeError: the scheduler stopped before all had ended.
    """
    recorder = Recorder(backend)
    memory = Memory(PageAllocator(backend.pages), backend.pages, layout.limits)
    desk = Desk(recorder, tokenizer, memory, Scheduler(ForwardLimits(layout.channels, layout.rows), memory), Clock())
    ends: dict[int, End] = {}
    for _ in range(1 + layout.again):
        recorder.marks.clear()
        ends = _answered(desk, [_order(number, case, layout) for number, case in enumerate(cases)])
    found = []
    for number in range(len(cases)):
        end = ends[number]
        found.append(Served(tuple(recorder.marks[number]), end.text, end.tokens, end.finish.value))
    return found


def _answered(desk: Desk, orders: Sequence[Order]) -> dict[int, End]:
    """All orders from their arrival to their ends, by ticket."""
    for order in orders:
        desk.join(order)
    ends: dict[int, End] = {}
    while not desk.idle:
        plan = desk.plan()
        if plan is None:
            raise RuntimeError("verify: questions wait for memory that nobody holds")
        desk.run(plan)
        ends.update({end.ticket: end for end in desk.report(plan, 0.0).ends})
    desk.check()
    return ends


def as_served(
    backend: Backend, tokenizer: Tokenizer, cases: Sequence[Case], alone: Sequence[Served], layout: Layout
) -> Check:
    """Packed in a layout, against each question served alone."""
    claim = f"as the worker serves it: {layout.name}"
    found = serve(backend, tokenizer, cases, layout)
    check = _rows(claim, alone, found)
    if not check.passed:
        return check
    ends = sum(one[1:] == other[1:] for one, other in zip(map(_tuple, alone), map(_tuple, found), strict=True))
    detail = f"{check.detail}; {ends} of {len(alone)} texts equal"
    return Check(claim, ends == len(alone), detail)


def _tuple(one: Served) -> tuple[object, ...]:
    return one.marks, one.text, one.tokens, one.finish


def _rows(claim: str, alone: Sequence[Served], found: Sequence[Served]) -> Check:
    """Row by row as far as both go; an answer that ends elsewhere differs from there on."""
    for number, (one, other) in enumerate(zip(alone, found, strict=True)):
        if len(one.marks) != len(other.marks):
            return Check(claim, False, f"question {number}: {len(other.marks)} rows, alone {len(one.marks)}")
    return compare_marks(claim, [one.marks for one in alone], [one.marks for one in found])


def _order(number: int, case: Case, layout: Layout) -> Order:
    job = Job(
        channel=number,
        group="verify",
        prompt=np.array(case.prompt.prompt, dtype=np.int32),
        max_tokens=len(case.marks),
        prefix=layout.prefix,
        parts=layout.parts,
        keep=layout.again,
    )
    return Order(number, job, case.sampling, case.seed, FOREVER)
