"""Spans kept in memory, for tests of traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kev.telemetry import traces

NEEDS = "OpenTelemetry is not installed: pip install 'kev-serving[trace]'"


class Spans:
    """The spans that have ended."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter

    def all(self) -> list[Any]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[Any]:
        return [span for span in self.all() if span.name == name]

    def of_slot(self, name: str, slot: int) -> Any:
        (found,) = [span for span in self.named(name) if span.attributes["kev.slot"] == slot]
        return found

    def paths(self) -> Counter[str]:
        """How often each path of names from a root is there."""
        by_id = {span.context.span_id: span for span in self.all()}

        def path(span: Any) -> str:
            parent = by_id.get(span.parent.span_id) if span.parent else None
            return span.name if parent is None else f"{path(parent)}/{span.name}"

        return Counter(map(path, by_id.values()))


@contextmanager
def recorded(sample: float = 1.0) -> Iterator[Spans]:
    """Traces on, kept in memory; off at the end. Skips the test where OpenTelemetry is missing."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason=NEEDS)
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider(sampler=ParentBased(TraceIdRatioBased(sample)))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traces.use(provider)
    try:
        yield Spans(exporter)
    finally:
        traces.use(None)
