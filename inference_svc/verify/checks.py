"""Claims about isolation, each tried on any backend.

Every check compares logits bit for bit with those of the same prompt answered
alone. They write the KV store's first pages: nobody else may use it meanwhile.

All take ``solo``, which remembers answers alone from one check to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from inference_svc.backends.port import Backend
from inference_svc.rows import PAGE_SIZE, Float32Array, pages_for
from inference_svc.verify.lanes import Prompt, Solo, drive, lane, page_count, side_by_side
from inference_svc.verify.report import Check, all_of, compare

Fill = Callable[[Sequence[int], float], None]
"""Sets K and V of pages to one value: how damage is planted."""


def packed_alone(
    backend: Backend, prompts: Sequence[Prompt], starts: Sequence[int] = (), *, solo: Solo | None = None
) -> Check:
    """All prompts packed, against each one alone.

    Args:
        backend: What is tested.
        prompts: One per channel.
        starts: Forward in which each prompt joins, so that prompt chunks meet single tokens; empty: all at once.
        solo: Answers alone.
    """
    expected = (solo or Solo(backend)).all(prompts)
    lanes = side_by_side(prompts)
    if starts:
        lanes = [one.delayed(start) for one, start in zip(lanes, starts, strict=True)]
    return compare("packed equals alone", expected, drive(backend, lanes))


def neighbour_swap(backend: Backend, prompt: Prompt, neighbours: Sequence[Prompt], others: Sequence[Prompt]) -> Check:
    """A prompt between two sets of neighbours, at prefill and at every later step."""
    found = []
    for company in (neighbours, others):
        middle = len(company) // 2
        packed = [*company[:middle], prompt, *company[middle:]]
        found.append(drive(backend, side_by_side(packed))[middle])
    return compare("neighbours do not matter", found[:1], found[1:])


def chunking(backend: Backend, prompt: Prompt, chunks: Sequence[int], *, solo: Solo | None = None) -> Check:
    """A prompt cut into pieces of several sizes, against the prompt in one piece."""
    expected = (solo or Solo(backend))(prompt)
    found = [drive(backend, [lane(prompt, chunk=chunk)])[0] for chunk in chunks]
    return compare("chunking does not matter", [expected] * len(found), found)


def page_permutation(backend: Backend, prompt: Prompt, *, solo: Solo | None = None) -> Check:
    """A prompt in pages that are out of order and apart, against consecutive ones."""
    expected = (solo or Solo(backend))(prompt)
    scattered = list(range(2 * prompt.pages - 1, -1, -2))
    found = drive(backend, [lane(prompt, channel=5, table=scattered)])
    return compare("page ids and channel numbers do not matter", [expected], found)


def shared_prefix(
    backend: Backend, prompts: Sequence[Prompt], lengths: Sequence[int], *, solo: Solo | None = None
) -> Check:
    """A prefix computed once and read by all, against every prompt on its own.

    Args:
        backend: What is tested.
        prompts: They begin with the same tokens, as many as the longest
            length, and are longer than it.
        lengths: Lengths of the prefix. Full pages are shared, the rest of a
            page is copied for each.
        solo: Answers alone.
    """
    expected = (solo or Solo(backend)).all(prompts)
    claim = "a shared prefix does not matter"
    runs = [compare(claim, _after(prompts, expected, n), _with_prefix(backend, prompts, n)) for n in lengths]
    return all_of(claim, runs)


def planted_nan(backend: Backend, prompts: Sequence[Prompt], fill: Fill, *, solo: Solo | None = None) -> Check:
    """A channel whose KV is damaged fails alone.

    Its logits are not finite, and all others are as if it were not there. The
    first prompt is the damaged one and needs an answer of one token or more.
    """
    expected = (solo or Solo(backend)).all(prompts[1:])
    lanes = side_by_side(prompts)
    table = lanes[0].table.tolist()
    drive(backend, [lane(Prompt(prompts[0].prompt), table=table)])
    fill(table[:1], float("nan"))
    damaged = lane(prompts[0], table=table, skip=len(prompts[0].prompt))
    found = drive(backend, [damaged, *lanes[1:]])
    fill(range(page_count(prompts)), 0.0)
    check = compare("a NaN stays in its channel", expected, found[1:])
    swallowed = int(np.isfinite(found[0]).any(axis=1).sum())
    if swallowed:
        return Check(check.claim, False, f"{swallowed} logit rows of the damaged channel hold finite values")
    return check


def stale_pages(backend: Backend, prompts: Sequence[Prompt], fill: Fill, *, solo: Solo | None = None) -> Check:
    """What an earlier owner left in a page is never read, not even a NaN."""
    expected = (solo or Solo(backend)).all(prompts)
    fill(range(page_count(prompts)), float("nan"))
    found = drive(backend, side_by_side(prompts))
    fill(range(page_count(prompts)), 0.0)
    return compare("leftovers in a page are never read", expected, found)


def _after(prompts: Sequence[Prompt], expected: Sequence[Float32Array], length: int) -> list[Float32Array]:
    """The expected rows that lie after a prefix: the prefix itself is not scored again."""
    return [rows[max(length - prompt.first_scored, 0) :] for prompt, rows in zip(prompts, expected, strict=True)]


def _with_prefix(backend: Backend, prompts: Sequence[Prompt], length: int) -> list[Float32Array]:
    drive(backend, [lane(Prompt(prompts[0].prompt[:length], scored=0))])
    full, free = length // PAGE_SIZE, pages_for(length)
    lanes = []
    for channel, prompt in enumerate(prompts):
        own = list(range(free, free + prompt.pages - full))
        free += len(own)
        if length % PAGE_SIZE:
            backend.copy_page(full, own[0])
        lanes.append(lane(prompt, channel=channel, table=[*range(full), *own], skip=length))
    return drive(backend, lanes)
