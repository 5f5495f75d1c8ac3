"""What a worker tells Prometheus: ``kev_inference_*``."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from inference_svc.channels import Phase
from inference_svc.report import End, Report

LADDER_S = (0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class WorkerMetrics:
    """One worker's metrics.

    Args:
        registry: Where they are registered; None makes one of their own.
    """

    def __init__(self, channels: int, pages: int, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry = CollectorRegistry() if registry is None else registry
        self._channels = channels
        self.forwards = Counter("kev_inference_forwards", "Forwards.", registry=registry)
        self.rows = Counter("kev_inference_rows", "Rows computed.", registry=registry)
        self.pack = Histogram(
            "kev_inference_pack_channels",
            "Channels in one forward.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
            registry=registry,
        )
        self.forward_seconds = _duration("forward", "One forward, sampling included.", registry)
        self.first_piece_seconds = _duration("first_text", "From a channel's start to its first text.", registry)
        self.answer_seconds = _duration("answer", "From a channel's start to its end.", registry)
        self.states = Gauge("kev_inference_channels", "Channels by state.", ["state"], registry=registry)
        self.pages_free = Gauge("kev_inference_kv_free_pages", "Free KV pages.", registry=registry)
        self.pages = Gauge("kev_inference_kv_pages", "KV pages.", registry=registry)
        self.ends = Counter("kev_inference_slots", "Runs by the way they ended.", ["reason"], registry=registry)
        self.tokens = Counter("kev_inference_tokens", "Tokens of answers.", registry=registry)
        self.strikes = Counter("kev_inference_strikes", "Questions taken again after a strike.", registry=registry)
        self.pages.set(pages)
        self.pages_free.set(pages)
        self.states.labels(Phase.FREE.value).set(channels)

    def turn(self, report: Report) -> None:
        """Counts one turn of the core."""
        if report.forward:
            self.forwards.inc()
            self.rows.inc(report.rows)
            self.pack.observe(report.channels)
            self.forward_seconds.observe(report.seconds)
        for phase in (Phase.PARKED, Phase.PREFILL, Phase.DECODE):
            self.states.labels(phase.value).set(report.phases[phase])
        self.states.labels(Phase.FREE.value).set(self._channels - report.phases.total())
        self.pages_free.set(report.pages_free)

    def end(self, end: End) -> None:
        """Counts one run's end."""
        self.ends.labels(end.finish.value).inc()
        self.tokens.inc(end.tokens)
        if end.started is not None:
            self.answer_seconds.observe(end.ended - end.started)


def _duration(thing: str, text: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(f"kev_inference_{thing}_seconds", text, buckets=LADDER_S, registry=registry)
