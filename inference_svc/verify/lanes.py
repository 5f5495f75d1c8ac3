"""Drives a backend through forwards whose layout is chosen freely.

A *lane* is one channel's whole run: its tokens, how they are cut into pieces
(one piece per forward), and which pages hold them. Checks and controls differ
only in the lanes they build, so a layout is data, and so is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inference_svc.backends.port import Backend
from inference_svc.rows import Float32Array, Int32Array, Pack, Span, pages_for


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text to run: the prompt, then tokens that are fed one by one as if generated.

    Attributes:
        prompt: Token ids, at least one.
        answer: Token ids fed after it, one per forward; may be empty.
        scored: How many of the prompt's last rows are compared.
    """

    prompt: tuple[int, ...]
    answer: tuple[int, ...] = ()
    scored: int = 1

    @property
    def length(self) -> int:
        """Positions of the whole run."""
        return len(self.prompt) + len(self.answer)

    @property
    def pages(self) -> int:
        """Pages of the whole run."""
        return pages_for(self.length)

    @property
    def first_scored(self) -> int:
        """Position of the first row that is compared."""
        return max(len(self.prompt) - self.scored, 0)


@dataclass(frozen=True, slots=True)
class Lane:
    """One channel's run.

    Attributes:
        channel: The channel's number.
        tokens: All tokens, int32.
        pieces: How many tokens go into each forward; the sum is their number.
        table: Page ids.
        first_scored: Index into ``tokens`` of the first row that wants logits.
        position: Position of the first token (0, except where a prefix is there already).
        start: Forward in which the lane joins.
    """

    channel: int
    tokens: Int32Array
    pieces: tuple[int, ...]
    table: Int32Array
    first_scored: int
    position: int = 0
    start: int = 0

    def span(self, forward: int) -> Span | None:
        """What this lane adds to a forward; None before it joins and after its end."""
        number = forward - self.start
        if not 0 <= number < len(self.pieces):
            return None
        done = sum(self.pieces[:number])
        count = self.pieces[number]
        wanted = min(max(done + count - self.first_scored, 0), count)
        return Span(self.channel, self.tokens[done : done + count], self.position + done, self.table, wanted)

    @property
    def forwards(self) -> int:
        """Number of forwards until this lane is done."""
        return self.start + len(self.pieces)

    def delayed(self, start: int) -> Lane:
        """The same lane, joining later."""
        return replace(self, start=start)


def lane(
    prompt: Prompt,
    *,
    channel: int = 0,
    first_page: int = 0,
    table: Sequence[int] | None = None,
    chunk: int | None = None,
    skip: int = 0,
) -> Lane:
    """The lane of a prompt.

    Args:
        prompt: What to run.
        channel: The channel's number.
        first_page: Without ``table``: the pages from here on, ascending.
        table: Page ids, if they are not simply consecutive.
        chunk: Longest piece of the prompt; None takes the whole prompt at once.
        skip: Positions that are in the store already (a prefix).
    """
    tokens = np.array((prompt.prompt + prompt.answer)[skip:], dtype=np.int32)
    left, step = len(prompt.prompt) - skip, chunk or len(prompt.prompt)
    pieces = [min(step, left - done) for done in range(0, left, step)] + [1] * len(prompt.answer)
    pages = range(first_page, first_page + prompt.pages) if table is None else table
    return Lane(
        channel=channel,
        tokens=tokens,
        pieces=tuple(pieces),
        table=np.array(pages, dtype=np.int32),
        first_scored=max(prompt.first_scored - skip, 0),
        position=skip,
    )


def side_by_side(prompts: Sequence[Prompt], first_page: int = 0) -> list[Lane]:
    """Every prompt in its own channel and pages, all joining at once."""
    lanes = []
    for channel, prompt in enumerate(prompts):
        lanes.append(lane(prompt, channel=channel, first_page=first_page))
        first_page += prompt.pages
    return lanes


def results(backend: Backend, lanes: Sequence[Lane]) -> Iterator[tuple[int, Float32Array]]:
    """Runs lanes together, one pack per forward, until all are done.

    Yields:
        After each forward, for every lane that was in it: its number, and the logits of its rows that wanted some,
        float32 ``[wanted, vocab]``.
    """
    for forward in range(max(one.forwards for one in lanes)):
        present = [(number, span) for number, one in enumerate(lanes) if (span := one.span(forward)) is not None]
        if not present:
            continue
        pack = Pack.of([span for _, span in present])
        logits, ends = backend.forward(pack), pack.result_offsets()
        for (number, _), begin, end in zip(present, ends[:-1], ends[1:], strict=True):
            yield number, logits[begin:end]


def drive(backend: Backend, lanes: Sequence[Lane]) -> list[Float32Array]:
    """Runs lanes together and keeps all logits.

    Returns:
        Per lane the logits of its scored rows in order, float32 ``[scored, vocab]``.
    """
    parts: list[list[Float32Array]] = [[] for _ in lanes]
    for number, logits in results(backend, lanes):
        parts[number].append(logits)
    return [np.concatenate(part) for part in parts]


def alone(backend: Backend, prompt: Prompt) -> Float32Array:
    """A prompt's logits with nobody else in the pack: what every check compares with."""
    return drive(backend, [lane(prompt)])[0]


class Solo:
    """Prompts answered alone, each run once however many checks ask for it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._known: dict[Prompt, Float32Array] = {}

    def __call__(self, prompt: Prompt) -> Float32Array:
        """The prompt's logits alone, float32 ``[scored, vocab]``."""
        if prompt not in self._known:
            self._known[prompt] = alone(self._backend, prompt)
        return self._known[prompt]

    def all(self, prompts: Sequence[Prompt]) -> list[Float32Array]:
        """Logits alone of several prompts."""
        return [self(prompt) for prompt in prompts]


def page_count(prompts: Sequence[Prompt]) -> int:
    """Pages that prompts need side by side."""
    return sum(prompt.pages for prompt in prompts)
