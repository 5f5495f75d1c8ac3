"""From the deployment's configuration to the bus adapters' settings.

One function for all services: streams made with one service's settings are
refused by another that differs.
"""

from __future__ import annotations

from kev.bus.settings import BusSettings
from kev.config.settings import Settings
from kev.config.source import ConfigError
from kev.wire.tls import authorities


def bus_settings(settings: Settings, name: str) -> BusSettings:
    """Section ``bus`` as the adapters take it.

    Args:
        name: This process's name in the broker's lists.

    Raises:
        ConfigError: the authorities that a broker of ``tls://`` is trusted by cannot be read.
    """
    bus = settings.bus
    ca = settings.tls.ca if bus.url.startswith(("tls://", "wss://")) else ""
    try:
        authorities(ca)
    except ValueError as error:
        raise ConfigError(f"tls.ca: {error}") from None
    return BusSettings(
        urls=tuple(url.strip() for url in bus.url.split(",")),
        name=name,
        user=bus.user,
        password=bus.password.get_secret_value(),
        tls_ca=ca,
        replicas=bus.replicas,
        queue_bound=bus.queue_bound,
        shared_lane_bound=bus.shared_lane_bound,
        ack_wait_s=bus.ack_wait_ms / 1000,
        lease_s=bus.lease_ms / 1000,
        result_ttl_s=bus.result_ttl_ms / 1000,
        question_grace_s=max(0.001, settings.aggregator.grace_ms / 1000),
    )
