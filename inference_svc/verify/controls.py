"""Deliberate faults. Each must make its check fail, or the checks prove nothing.

A fault is built from lanes alone, so it works on any backend: a page table
that names a neighbour's page, positions that go on where a neighbour ended,
and one causal sequence for everybody, which is what a plain mask without
blocks would compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from inference_svc.backends.port import Backend
from inference_svc.rows import PAGE_SIZE, Int32Array, pages_for
from inference_svc.verify.lanes import Lane, Prompt, Solo, drive, lane, side_by_side
from inference_svc.verify.report import Check, compare


def page_shared(backend: Backend, prompts: Sequence[Prompt], *, solo: Solo | None = None) -> Check:
    """The second channel's first page is the first channel's: both write it, both read it."""
    lanes = side_by_side(prompts)
    table = lanes[1].table.copy()
    table[0] = lanes[0].table[0]
    lanes[1] = replace(lanes[1], table=table)
    return _against_alone(backend, prompts, lanes, solo, "a page is shared")


def positions_not_restarted(backend: Backend, prompts: Sequence[Prompt], *, solo: Solo | None = None) -> Check:
    """Each channel's positions begin where the one before it ended, in its own pages."""
    lanes, position, first_page = [], 0, 0
    for channel, prompt in enumerate(prompts):
        pages = pages_for(position + prompt.length)
        table = np.arange(first_page, first_page + pages, dtype=np.int32)
        backend.scrub(table.tolist())
        lanes.append(replace(lane(prompt, channel=channel), table=table, position=position))
        position += prompt.length
        first_page += pages
    return _against_alone(backend, prompts, lanes, solo, "positions are not restarted")


def mask_removed(backend: Backend, prompts: Sequence[Prompt], *, solo: Solo | None = None) -> Check:
    """All prompts are one causal sequence: each sees those before it.

    Each prompt is rounded up to whole pages with its own last token, so that
    everybody's pages can stand in everybody's table.
    """
    lanes: list[Lane] = []
    seen: list[Int32Array] = []
    for one in side_by_side([_whole(prompt) for prompt in prompts]):
        seen.append(one.table)
        table = np.concatenate(seen)
        lanes.append(replace(one, table=table, position=(len(table) - len(one.table)) * PAGE_SIZE))
    return _against_alone(backend, [_whole(prompt) for prompt in prompts], lanes, solo, "the mask is removed")


def _whole(prompt: Prompt) -> Prompt:
    missing = -len(prompt.prompt) % PAGE_SIZE
    return Prompt(prompt.prompt + prompt.prompt[-1:] * missing, (), prompt.scored)


def _against_alone(
    backend: Backend, prompts: Sequence[Prompt], lanes: Sequence[Lane], solo: Solo | None, fault: str
) -> Check:
    expected = (solo or Solo(backend)).all(prompts)
    return compare(f"control, must fail: {fault}", expected, drive(backend, lanes))


CONTROLS = (page_shared, positions_not_restarted, mask_removed)
"""All faults. A check on any of them must not pass."""
