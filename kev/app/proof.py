"""The isolation claims, tried on a loaded model with a user's own questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from inference_svc.backends.port import Backend
from inference_svc.verify import CONTROLS, Check, Prompt, Solo, checks, self_test

SHORT_LENGTHS = (1, 16, 17)
LONG_LENGTHS = (1, 15, 16, 17, 128, 130)
"""Lengths of shared prefixes: below, at and above the ends of pages."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is tried.

    Attributes:
        questions: How many questions, ``together`` in one pack.
        steps: Single-token forwards after each prompt.
        prefixes: Lengths of shared prefixes.
        chunks: Sizes that a prompt is cut into.
    """

    questions: int
    together: int
    steps: int
    prefixes: tuple[int, ...]
    chunks: tuple[int, ...]


SHORT = Extent(questions=8, together=8, steps=8, prefixes=SHORT_LENGTHS, chunks=(1, 16))
LONG = Extent(questions=64, together=16, steps=64, prefixes=LONG_LENGTHS, chunks=(1, 7, 16, 33))


def prompts_of(tokens: Sequence[Sequence[int]], extent: Extent) -> list[Prompt]:
    """Prompts with forced continuations: each is followed by the beginning of the next one's text, fed one by one."""
    chosen = [tuple(one) for one in tokens[: extent.questions]]
    text = [token for one in chosen for token in one]
    return [
        Prompt(one, tuple((text * (extent.steps // len(text) + 2))[number : number + extent.steps]))
        for number, one in enumerate(chosen)
    ]


def proof(backend: Backend, tokens: Sequence[Sequence[int]], extent: Extent) -> Iterator[Check]:
    """Tries every claim; yields each verdict as it is found. The KV store must not be in use.

    Args:
        tokens: The questions' prompts, at least two.
    """
    yield from self_test(backend).checks
    prompts = prompts_of(tokens, extent)
    for first in range(0, len(prompts), extent.together):
        group = prompts[first : first + extent.together]
        if len(group) > 1:
            yield from _group(backend, group, extent)
    yield _prefixes(backend, prompts, extent)
    yield from _damage(backend, prompts[:3])
    backend.scrub(range(backend.pages))


def _group(backend: Backend, group: Sequence[Prompt], extent: Extent) -> Iterator[Check]:
    """What holds for some questions in one pack."""
    solo = Solo(backend)
    yield checks.packed_alone(backend, group, solo=solo)
    yield checks.packed_alone(backend, group, list(range(len(group))), solo=solo)
    yield checks.neighbour_swap(backend, group[0], group[1:3], list(reversed(group[-2:])))
    yield checks.chunking(backend, group[0], extent.chunks, solo=solo)
    yield checks.page_permutation(backend, group[-1], solo=solo)


def _prefixes(backend: Backend, prompts: Sequence[Prompt], extent: Extent) -> Check:
    """Two questions behind one text, long enough for the longest prefix."""
    longest = max(extent.prefixes)
    text = [token for one in prompts for token in one.prompt]
    shared = tuple((text * (longest // len(text) + 1))[:longest])
    pair = [Prompt(shared + one.prompt, one.answer[:4]) for one in prompts[:2]]
    return checks.shared_prefix(backend, pair, extent.prefixes)


def _damage(backend: Backend, prompts: Sequence[Prompt]) -> Iterator[Check]:
    """Faults that must stay in their channel, and faults that must be seen."""
    fill: Callable[[Sequence[int], float], None] | None = getattr(backend, "fill", None)
    if fill is not None:
        yield checks.planted_nan(backend, prompts, fill)
        yield checks.stale_pages(backend, prompts, fill)
    for control in CONTROLS:
        found = control(backend, prompts)
        verdict = "not seen" if found.passed else "seen"
        yield Check(f"{found.claim}: {verdict}", not found.passed, found.detail)
