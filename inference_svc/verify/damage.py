"""One NaN in one element: that channel's logits are lost, and no other bit changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Protocol, runtime_checkable

import numpy as np

from inference_svc.backends.port import Backend
from inference_svc.models.config import ModelConfig
from inference_svc.rows import PAGE_SIZE
from inference_svc.verify.cases import Case
from inference_svc.verify.lanes import Lane, Prompt, drive, lane
from inference_svc.verify.marks import Mark, mark_of
from inference_svc.verify.report import Check

NAN = float("nan")
HIT = 1
"""The channel that gets the NaN."""


@runtime_checkable
class Plantable(Backend, Protocol):
    """A backend into which faults can be planted, element by element."""

    def fill(self, pages: Sequence[int], value: float) -> None:
        """Sets K and V of pages in every layer to one value."""

    def plant_kv(self, side: str, *, layer: int, page: int, head: int, slot: int, element: int, value: float) -> None:
        """Writes one element of K (``k``) or V (``v``) of a page's position ``slot``."""

    def plant_row(self, *, layer: int, row: int, element: int, value: float) -> None:
        """The next forward adds ``value`` to one element of a row's hidden state before ``layer``."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a NaN goes: a layer, a position of the channel, a KV head, and an element there."""

    layer: int
    position: int
    head: int
    element: int


def sizes_of(backend: Backend) -> ModelConfig:
    """The decoder's sizes."""
    found: ModelConfig = getattr(backend, "config", None) or backend.packed.config  # type: ignore[attr-defined]
    return found


def spots(backend: Backend, length: int) -> Iterator[Spot]:
    """Places in K and V of a channel with ``length`` positions: first, middle and last of everything."""
    sizes = sizes_of(backend)
    yield Spot(0, 0, 0, 0)
    yield Spot(sizes.layers // 2, length // 2, sizes.kv_heads - 1, sizes.head_dim // 2)
    yield Spot(sizes.layers - 1, length - 1, 0, sizes.head_dim - 1)


def row_spots(backend: Backend) -> Iterator[Spot]:
    """Places in hidden states; position and head do not count."""
    sizes = sizes_of(backend)
    yield Spot(0, 0, 0, 0)
    yield Spot(sizes.layers // 2, 0, 0, sizes.hidden // 2 + 1)
    yield Spot(sizes.layers - 1, 0, 0, sizes.hidden - 1)


class Damage:
    """A pack of questions one token into their answers, into which NaNs are planted.

    Attributes:
        length: Positions of the channel that is hit.

    Args:
        backend: Its KV store must have a page more than the questions need.
        cases: At least two; the second is the one that is hit.
    """

    def __init__(self, backend: Plantable, cases: Sequence[Case]) -> None:
        self._backend = backend
        prompts = [replace(case.prompt, answer=case.prompt.answer[:1]) for case in cases]
        tables = _tables(prompts)
        self._spare = sum(prompt.pages for prompt in prompts)
        self._table = tables[HIT]
        self.length = len(prompts[HIT].prompt)
        drive(backend, [_lane(Prompt(one.prompt, scored=0), at, tables[at]) for at, one in enumerate(prompts)])
        self._steps = [_lane(one, at, tables[at], skip=len(one.prompt)) for at, one in enumerate(prompts)]
        self._calm = self._step()

    def in_kv(self, side: str, spots: Sequence[Spot]) -> Check:
        """A NaN in one element of K or V, at each of several places in turn."""
        found = []
        for spot in spots:
            page = self._table[spot.position // PAGE_SIZE]
            self._backend.copy_page(page, self._spare)
            where = {"layer": spot.layer, "page": page, "head": spot.head, "slot": spot.position % PAGE_SIZE}
            self._backend.plant_kv(side, **where, element=spot.element, value=NAN)
            found.append(self._step())
            self._backend.copy_page(self._spare, page)
        return self._verdict(f"a NaN in one element of {side.upper()} stays in its channel", found)

    def in_activation(self, spots: Sequence[Spot]) -> Check:
        """A NaN in one element of a hidden state, at each of several places in turn."""
        found = []
        for spot in spots:
            self._backend.plant_row(layer=spot.layer, row=HIT, element=spot.element, value=NAN)
            found.append(self._step())
        return self._verdict("a NaN in one element of an activation stays in its channel", found)

    def _step(self) -> list[tuple[Mark, bool]]:
        """The next token's row of every channel: its mark, and whether all of it is lost."""
        found = drive(self._backend, self._steps)
        return [(mark_of(rows[0]), not np.isfinite(rows[0]).any()) for rows in found]

    def _verdict(self, claim: str, found: Sequence[Sequence[tuple[Mark, bool]]]) -> Check:
        lost = sum(rows[HIT][1] for rows in found)
        others = [at for at in range(len(self._calm)) if at != HIT]
        equal = sum(rows[at][0] == self._calm[at][0] for rows in found for at in others)
        wanted = len(others) * len(found)
        calm = all(mark.finite for mark, _ in self._calm)
        detail = f"{lost} of {len(found)} hit rows wholly lost; {equal} of {wanted} other rows as in a calm run"
        return Check(claim, calm and lost == len(found) and equal == wanted, detail)


def _tables(prompts: Sequence[Prompt]) -> list[list[int]]:
    ends = list(accumulate(prompt.pages for prompt in prompts))
    return [list(range(end - prompt.pages, end)) for end, prompt in zip(ends, prompts, strict=True)]


def _lane(prompt: Prompt, channel: int, table: Sequence[int], skip: int = 0) -> Lane:
    return lane(prompt, channel=channel, table=table, skip=skip)
