"""A prefix that is computed once and read by all: the same logits as for everybody on their own."""

from __future__ import annotations

from collections.abc import Sequence

from inference_svc.backends.port import Backend
from inference_svc.rows import PAGE_SIZE, pages_for
from inference_svc.verify.cases import Case, marks_of
from inference_svc.verify.lanes import Lane, Prompt, drive, lane
from inference_svc.verify.marks import compare_marks, marks
from inference_svc.verify.report import Check

LENGTHS = (1, 15, 16, 17, 128, 130)
"""Tokens of the prefix: on both sides of a page's end, and of many."""


def prefix_hit(backend: Backend, cases: Sequence[Case], length: int) -> Check:
    """All cases read a stored prefix; alone, each computed all of its prompt (a miss).

    Args:
        backend: What is tried.
        cases: Their prompts begin with the same ``length`` tokens, and are longer.
        length: Full pages are shared, the rest of a page is copied for each.
    """
    found = marks(backend, with_prefix(backend, cases, length))
    return compare_marks(
        f"a prefix of {length} token{'s' if length > 1 else ''}: hit equals miss", marks_of(cases), found
    )


def with_prefix(backend: Backend, cases: Sequence[Case], length: int) -> list[Lane]:
    """Computes a prefix into the first pages; returns lanes that begin after it."""
    drive(backend, [lane(Prompt(cases[0].prompt.prompt[:length], scored=0))])
    full, free = length // PAGE_SIZE, pages_for(length)
    lanes = []
    for channel, case in enumerate(cases):
        own = list(range(free, free + case.prompt.pages - full))
        free += len(own)
        if length % PAGE_SIZE:
            backend.copy_page(full, own[0])
        lanes.append(lane(case.prompt, channel=channel, table=[*range(full), *own], skip=length))
    return lanes
