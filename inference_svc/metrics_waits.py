"""A histogram per hash bucket that is cheap to read.

Hundreds of series of one metric: the library's own histogram builds every
sample's labels anew at every scrape, on a thread that the event loop waits
for. Here they are built once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample


class _Series:
    """One label's counts, and the labels of its samples."""

    def __init__(self, label: dict[str, str], edges: Sequence[float]) -> None:
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0
        self.label = label
        self.edges = [label | {"le": text} for text in (*(_text(edge) for edge in edges), "+Inf")]


class LabelledHistogram(Collector):
    """A histogram with one label.

    Args:
        name: With its unit, without ``_bucket``.
        edges: Upper bounds, ascending; infinity comes by itself.
    """

    def __init__(self, name: str, text: str, label: str, edges: Sequence[float]) -> None:
        self._name, self._text, self._label, self._edges = name, text, label, tuple(edges)
        self._series: dict[str, _Series] = {}

    def observe(self, label: str, value: float) -> None:
        """Counts one value."""
        series = self._series.get(label)
        if series is None:
            series = self._series[label] = _Series({self._label: label}, self._edges)
        series.counts[bisect_left(self._edges, value)] += 1
        series.sum += value

    def collect(self) -> Iterator[Metric]:
        """As the registry wants it. Runs on the scrape's thread."""
        metric = Metric(self._name, self._text, "histogram")
        bucket, count, total = (f"{self._name}_{part}" for part in ("bucket", "count", "sum"))
        for series in tuple(self._series.values()):
            sums = tuple(accumulate(series.counts))
            metric.samples += [Sample(bucket, labels, at) for labels, at in zip(series.edges, sums, strict=True)]
            metric.samples += [Sample(count, series.label, sums[-1]), Sample(total, series.label, series.sum)]
        yield metric

    def describe(self) -> Iterator[Metric]:
        """Names, so that nobody registers them twice."""
        yield Metric(self._name, self._text, "histogram")


def _text(edge: float) -> str:
    return str(float(edge))
