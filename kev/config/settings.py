"""Every setting, typed: what ``kev.yaml`` may say, section by section. Defaults work on a laptop."""

from __future__ import annotations

from pydantic import model_validator

from kev.config.sections.aggregator import AggregatorSettings
from kev.config.sections.base import Section
from kev.config.sections.bus import BusSection
from kev.config.sections.core import CoreSettings, Precision
from kev.config.sections.deploy import DeploySettings, Mode
from kev.config.sections.doors import AuthSettings, HttpSettings, TlsSettings
from kev.config.sections.inference import InferenceSettings
from kev.config.sections.isolation import ContextSettings, IsolationSettings, KvLayout
from kev.config.sections.pre_bucket import PreBucket, pre_bucket_widths
from kev.config.sections.router import OverflowPolicy, RouterSettings
from kev.config.sections.watching import LogFormat, LogSettings, MetricsSettings, TraceSettings

__all__ = [
    "AggregatorSettings",
    "AuthSettings",
    "BusSection",
    "ContextSettings",
    "CoreSettings",
    "DeploySettings",
    "HttpSettings",
    "InferenceSettings",
    "IsolationSettings",
    "KvLayout",
    "LogFormat",
    "LogSettings",
    "MetricsSettings",
    "Mode",
    "OverflowPolicy",
    "PreBucket",
    "Precision",
    "RouterSettings",
    "Settings",
    "TlsSettings",
    "TraceSettings",
    "pre_bucket_widths",
]


class Settings(Section):
    """The whole of ``kev.yaml``."""

    deploy: DeploySettings = DeploySettings()
    router: RouterSettings = RouterSettings()
    inference: InferenceSettings = InferenceSettings()
    isolation: IsolationSettings = IsolationSettings()
    context: ContextSettings = ContextSettings()
    core: CoreSettings = CoreSettings()
    aggregator: AggregatorSettings = AggregatorSettings()
    bus: BusSection = BusSection()
    auth: AuthSettings = AuthSettings()
    tls: TlsSettings = TlsSettings()
    http: HttpSettings = HttpSettings()
    metrics: MetricsSettings = MetricsSettings()
    log: LogSettings = LogSettings()
    trace: TraceSettings = TraceSettings()

    @model_validator(mode="after")
    def _fit(self) -> Settings:
        longest = max(self.router.max_timeout_ms, self.aggregator.timeout_ms)
        if self.bus.result_ttl_ms <= 2 * (longest + self.bus.ack_wait_ms):
            raise ValueError(
                "bus.result_ttl_ms must be more than 2 x (the longest timeout + bus.ack_wait_ms) = "
                f"{2 * (longest + self.bus.ack_wait_ms)}, got {self.bus.result_ttl_ms}"
            )
        if self.aggregator.timeout_ms > self.router.max_timeout_ms:
            raise ValueError("aggregator.timeout_ms must not be above router.max_timeout_ms")
        return self
