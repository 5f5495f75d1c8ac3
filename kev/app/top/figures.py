"""From two readings of the services' metrics to figures. Pure: time is passed in."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """All endpoints' samples at one moment.

    Attributes:
        at: Monotonic seconds.
        values: Name -> labels (with ``endpoint``) -> value.
        missing: Endpoints that did not answer.
    """

    at: float
    values: Mapping[str, Mapping[Labels, float]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, at: float, texts: Mapping[str, str | None]) -> Reading:
        """From endpoint -> text of its metrics, None where there was no answer."""
        values: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        for endpoint, text in texts.items():
            for family in text_string_to_metric_families(text or ""):
                for sample in family.samples:
                    labels = tuple(sorted({**sample.labels, "endpoint": endpoint}.items()))
                    values[sample.name][labels] = sample.value
        return cls(at, values, tuple(endpoint for endpoint, text in texts.items() if text is None))

    def by(self, name: str, label: str = "", **picked: str) -> dict[str, float]:
        """Sums of a metric by the values of a label ("" for one sum), over all other labels."""
        sums: defaultdict[str, float] = defaultdict(float)
        for labels, value in self.values.get(name, {}).items():
            found = dict(labels)
            if all(found.get(key) == wanted for key, wanted in picked.items()):
                sums[found.get(label, "")] += value
        return dict(sums)

    def most(self, name: str) -> float:
        """The largest value of a metric; 0 where there is none."""
        return max(self.values.get(name, {}).values(), default=0.0)


@dataclass(frozen=True, slots=True)
class Figures:
    """What happened between two readings, and how things stand."""

    before: Reading
    now: Reading

    def rates(self, name: str, label: str = "", **picked: str) -> dict[str, float]:
        """Growth a second of a counter by the values of a label. One that started anew counts from zero."""
        seconds = self.now.at - self.before.at
        if seconds <= 0:
            return {}
        grown: defaultdict[str, float] = defaultdict(float)
        old = self.before.values.get(name, {})
        for labels, value in self.now.values.get(name, {}).items():
            found = dict(labels)
            if any(found.get(key) != wanted for key, wanted in picked.items()):
                continue
            # A series that was not there before began at zero; with an endpoint that was not, nobody knows when.
            last = old.get(labels, 0.0 if found["endpoint"] in _endpoints(self.before) else value)
            grown[found.get(label, "")] += value - last if value >= last else value
        return {key: growth / seconds for key, growth in grown.items()}

    def rate(self, name: str, **picked: str) -> float:
        """Growth a second of a counter, all labels together."""
        return sum(self.rates(name, **picked).values())

    def quantile(self, name: str, share: float) -> float:
        """A quantile of a histogram between the two readings, interpolated in its bucket; NaN when nothing happened."""
        rates = self.rates(f"{name}_bucket", "le")
        edges = sorted((float(edge), rate) for edge, rate in rates.items())
        if not edges or edges[-1][1] <= 0:
            return math.nan
        wanted, lower, below = share * edges[-1][1], 0.0, 0.0
        for edge, upto in edges:
            if upto >= wanted:
                inside = upto - below
                return lower if math.isinf(edge) else lower + (edge - lower) * (wanted - below) / (inside or 1.0)
            lower, below = edge, upto
        return lower

    def shares(self, name: str, label: str) -> list[tuple[str, float, float]]:
        """Value of the label, rate, share of all; the largest first, without those that stand still."""
        rates = {key: rate for key, rate in self.rates(name, label).items() if rate > 0}
        whole = sum(rates.values())
        return sorted(((key, rate, rate / whole) for key, rate in rates.items()), key=lambda row: (-row[1], row[0]))


def _endpoints(reading: Reading) -> frozenset[str]:
    return frozenset(_named(labels for series in reading.values.values() for labels in series))


def _named(series: Iterable[Labels]) -> Iterable[str]:
    return (dict(labels)["endpoint"] for labels in series)
