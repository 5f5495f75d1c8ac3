"""A histogram of durations, many of which are equal.

All slots of a forward get their texts in the same moment, so their pauses are
one number: it is counted once, with how often it came.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import REGISTRY
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Durations(Collector):
    """Registers itself. Observed by one thread, read by any.

    Args:
        name: With its unit.
        edges: Upper bounds in seconds, ascending; infinity comes by itself.
    """

    def __init__(self, name: str, text: str, edges: Sequence[float]) -> None:
        self._name, self._text, self._edges = name, text, tuple(edges)
        self._counts = [0] * (len(edges) + 1)
        self._sum = 0.0
        REGISTRY.register(self)

    def observe(self, seconds: Iterable[float]) -> None:
        """Counts some."""
        for value, times in Counter(seconds).items():
            self._counts[bisect_left(self._edges, value)] += times
            self._sum += value * times

    def collect(self) -> Iterator[Metric]:
        """As the registry wants it."""
        names = [*(str(float(edge)) for edge in self._edges), "+Inf"]
        buckets = list(zip(names, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._text, buckets=buckets, sum_value=self._sum)

    def describe(self) -> Iterator[Metric]:
        """Its name, so that nobody registers it twice."""
        yield HistogramMetricFamily(self._name, self._text)
