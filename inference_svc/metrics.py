"""What a worker tells Prometheus: ``kev_inference_*``. Labels are bounded: never a request, never a tenant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from inference_svc.channels import Kind, Phase
from inference_svc.gate import CRASHED
from inference_svc.metrics_waits import LabelledHistogram
from inference_svc.report import End, Report
from kev.domain.outcome import FinishReason, Outcome
from kev.wire.labels import bucket_label

LADDER_S = (0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
QUEUE_LADDER_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Shorter, because there is one per bucket."""
PACK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class WorkerMetrics:
    """One worker's metrics.

    Args:
        buckets: ``router.hash_buckets``, for the labels.
        registry: Where they are registered; None makes one of their own.
    """

    def __init__(
        self, channels: int, pages: int, registry: CollectorRegistry | None = None, *, buckets: int = 64
    ) -> None:
        self.registry = registry = CollectorRegistry() if registry is None else registry
        self._channels, self._pages, self._buckets = channels, pages, buckets
        self._forwards(registry)
        self._questions(registry)
        self._state(registry)
        self.pages.set(pages)
        self._set_regions(free=pages, prefix=0)
        self._set_states({})

    def _forwards(self, registry: CollectorRegistry) -> None:
        self.forwards = Counter("kev_inference_forwards", "Forwards.", registry=registry)
        self.rows = Counter(
            "kev_inference_rows", "Rows computed: of prompts or of answers.", ["kind"], registry=registry
        )
        self.pack = Histogram(
            "kev_inference_pack_channels", "Channels in one forward.", buckets=PACK_SIZES, registry=registry
        )
        self.pack_rows = Histogram(
            "kev_inference_pack_rows", "Rows in one forward.", buckets=PACK_SIZES, registry=registry
        )
        self.forward_seconds = _duration(
            "forward", "One forward, sampling included: of prompts, of answers, or mixed.", registry, ["phase"]
        )
        self.answer_seconds = _duration("answer", "From a channel's start to its end.", registry)
        self.tokens = Counter("kev_inference_tokens", "Tokens of answers.", registry=registry)
        self._rows_of = {kind: self.rows.labels(kind) for kind in ("prefill", "decode")}
        self._seconds_of = {phase: self.forward_seconds.labels(phase) for phase in ("prefill", "decode", "mixed")}

    def _questions(self, registry: CollectorRegistry) -> None:
        self.ends = Counter("kev_inference_slots", "Runs by the way they ended.", ["reason"], registry=registry)
        self.outcomes = Counter("kev_inference_outcomes", "Outcomes written.", ["status"], registry=registry)
        self.branches = Counter(
            "kev_inference_questions", "Questions run, by routing branch.", ["branch"], registry=registry
        )
        self.by_channel = Counter(
            "kev_inference_channel_questions", "Questions run, by channel.", ["channel"], registry=registry
        )
        self.queue_seconds = LabelledHistogram(
            "kev_inference_queue_seconds",
            "Acceptance of a question to its start, by hash bucket.",
            "bucket",
            QUEUE_LADDER_S,
        )
        registry.register(self.queue_seconds)
        self.overran = Histogram(
            "kev_inference_cancel_forwards",
            "Forwards that a cancelled question still had after this worker knew of the cancel.",
            buckets=(0, 1, 2, 4, 8),
            registry=registry,
        )
        self.retaken = Counter(
            "kev_inference_retaken_questions", "Questions that a worker had taken before.", registry=registry
        )
        self.dead_letters = Counter(
            "kev_inference_dead_letters", "Questions that ended as dead letters.", registry=registry
        )

    def _state(self, registry: CollectorRegistry) -> None:
        self.states = Gauge("kev_inference_channels", "Channels by state.", ["state"], registry=registry)
        self._states_of = _Levels(self.states)
        self.pages = Gauge("kev_inference_kv_pages", "KV pages.", registry=registry)
        self.regions = Gauge(
            "kev_inference_kv_region_pages",
            "KV pages: free, of channels, of stored context (system prompt, pools, prefixes, conversations).",
            ["region"],
            registry=registry,
        )
        self._regions_of = _Levels(self.regions)
        self.lookups = Counter(
            "kev_inference_context_lookups",
            "Stored context that questions looked for: was it there, or computed for them?",
            ["kind", "result"],
            registry=registry,
        )
        self.evictions = Counter(
            "kev_inference_context_evictions", "Stored context dropped for room.", ["kind"], registry=registry
        )
        for kind in Kind:
            self.evictions.labels(kind.value)
            for result in ("hit", "miss"):
                self.lookups.labels(kind.value, result)
        self.integrity = Counter(
            "kev_inference_integrity_checks",
            "Checks that no page is lost or shared by mistake.",
            ["result"],
            registry=registry,
        )
        self.self_tests = Gauge(
            "kev_inference_self_test_passed", "Whether packed equalled alone at the start: 1, or 0.", registry=registry
        )
        self.audit = Counter(
            "kev_inference_audit_records",
            "Records of the audit log: written or dropped.",
            ["result"],
            registry=registry,
        )
        for result in ("passed", "failed"):
            self.integrity.labels(result)

    def turn(self, report: Report) -> None:
        """Counts one turn of the core."""
        if report.forward:
            prefill, decode = report.prefill_rows, report.rows - report.prefill_rows
            self.forwards.inc()
            self._rows_of["prefill"].inc(prefill)
            self._rows_of["decode"].inc(decode)
            self.pack.observe(report.channels)
            self.pack_rows.observe(report.rows)
            phase = "mixed" if prefill and decode else "prefill" if prefill else "decode"
            self._seconds_of[phase].observe(report.seconds)
        self._set_states(report.phases)
        self._set_regions(free=report.pages_free, prefix=report.pages_prefix)
        for (kind, result), times in report.lookups.items():
            self.lookups.labels(kind.value, result).inc(times)
        for kind, times in report.evicted.items():
            self.evictions.labels(kind.value).inc(times)
        if report.checks:
            self.checked("passed", report.checks)

    def end(self, end: End) -> None:
        """Counts one run's end."""
        self.ends.labels(end.finish.value).inc()
        self.tokens.inc(end.tokens)
        if end.started is not None:
            self.answer_seconds.observe(end.ended - end.started)
            if end.finish is FinishReason.CANCELLED:
                self.overran.observe(end.overran)

    def settled(self, outcome: Outcome) -> None:
        """Counts an outcome that this worker wrote."""
        audit = outcome.audit
        self.outcomes.labels(outcome.status.value).inc()
        self.dead_letters.inc(outcome.reason == CRASHED)
        self.retaken.inc(outcome.attempt > 1)
        if audit.channel:
            self.branches.labels(audit.branch).inc()
            self.by_channel.labels(str(audit.channel_id)).inc()
            self.queue_seconds.observe(bucket_label(audit.bucket, self._buckets), audit.queued_ms / 1000)

    def self_test(self, passed: bool) -> None:
        """The start-up self-test's result."""
        self.self_tests.set(passed)

    def checked(self, result: str, times: int = 1) -> None:
        """Integrity checks of the page tables: ``passed`` or ``failed``."""
        self.integrity.labels(result).inc(times)

    def audited(self, result: str, records: int) -> None:
        """Records of the audit log: ``written`` or ``dropped``."""
        self.audit.labels(result).inc(records)

    def _set_states(self, phases: Mapping[Phase, int]) -> None:
        for phase in (Phase.PARKED, Phase.PREFILL, Phase.DECODE):
            self._states_of.set(phase.value, phases.get(phase, 0))
        self._states_of.set(Phase.FREE.value, self._channels - sum(phases.values()))

    def _set_regions(self, *, free: int, prefix: int) -> None:
        for region, pages in (("free", free), ("prefix", prefix), ("channel", self._pages - free - prefix)):
            self._regions_of.set(region, pages)


class _Levels:
    """A gauge's series. This is called at every forward, so only what has changed is written."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._levels: dict[str, int] = {}

    def set(self, label: str, level: int) -> None:
        """Sets the series of a label."""
        if self._levels.get(label) != level:
            self._levels[label] = level
            self._gauge.labels(label).set(level)


def _duration(thing: str, text: str, registry: CollectorRegistry, labels: Sequence[str] = ()) -> Histogram:
    return Histogram(f"kev_inference_{thing}_seconds", text, labels, buckets=LADDER_S, registry=registry)
