"""Shared lanes over several subjects. Pure.

The broker has one bound for every subject of a stream, and a shared lane holds
more than a channel's queue does. So a shared lane is several subjects of the
same stream (an atomic publish cannot span two). Its durable reads all of them,
in order of arrival.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kev.bus.messages import Lane


def spread(lanes: Sequence[Lane], count: int, start: int) -> list[int]:
    """A subject number for every question: in turn, starting anywhere. Channels have one subject, 0.

    Args:
        lanes: The lane of every question.
        count: Subjects of a shared lane.
    """
    seen: Counter[Lane] = Counter()
    numbers = []
    for lane in lanes:
        numbers.append((start + seen[lane]) % count if lane.shared else 0)
        seen[lane] += 1
    return numbers


def fill(lanes: Sequence[Lane], count: int, depths: Mapping[tuple[Lane, int], int]) -> list[int]:
    """Like ``spread``, but always the emptiest subject by ``depths``."""
    heaps: dict[Lane, list[tuple[int, int]]] = {}
    numbers = []
    for lane in lanes:
        if not lane.shared:
            numbers.append(0)
            continue
        if lane not in heaps:
            heaps[lane] = [(depths.get((lane, number), 0), number) for number in range(count)]
            heapq.heapify(heaps[lane])
        depth, number = heaps[lane][0]
        heapq.heapreplace(heaps[lane], (depth + 1, number))
        numbers.append(number)
    return numbers


def by_lane(depths: Iterable[tuple[tuple[Lane, int], int]]) -> dict[Lane, int]:
    """Depths of lanes from depths of subjects."""
    total: Counter[Lane] = Counter()
    for (lane, _), depth in depths:
        total[lane] += depth
    return dict(total)
