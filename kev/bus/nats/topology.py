"""Streams and durables: created if they are missing, compared if they are not.

Nobody else creates anything on the broker. What exists is never changed: a
difference that matters is refused, with both values.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from kev.bus.nats.link import Link
from kev.bus.nats.replies import ApiError, NoResponders
from kev.bus.nats.subjects import Names
from kev.bus.settings import BusSettings
from kev.domain.errors import BusUnavailable, KevError

_STREAM_DIFFERS = 10058
_CONSUMER_DIFFERS = (10148, 10149)
_RETRY_S = 0.2


class TopologyMismatch(KevError):
    """The broker's streams or consumers were made with other settings."""


def ns(seconds: float) -> int:
    """Nanoseconds, as the broker counts."""
    return int(seconds * 1_000_000_000)


def streams(names: Names, settings: BusSettings) -> tuple[dict[str, Any], ...]:
    """The configuration of every stream: all that matters, nothing else."""
    common = {"storage": "file", "num_replicas": settings.replicas, "max_consumers": -1}
    limits = common | {"retention": "limits"}
    queue = {
        "name": names.queue_stream,
        "subjects": [names.queues],
        "retention": "workqueue",
        "discard": "new",
        "discard_new_per_subject": True,
        "max_msgs_per_subject": settings.queue_bound,
        "duplicate_window": ns(settings.dedupe_window_s),
        "allow_atomic": True,
        "allow_msg_ttl": True,
    }
    result = {
        "name": names.result_stream,
        "subjects": [f"{names.ns}.result.>"],
        "discard": "new",
        "max_age": ns(settings.result_ttl_s),
        "allow_direct": True,
    }
    strike = {
        "name": names.strike_stream,
        "subjects": [f"{names.ns}.strike.>"],
        "discard": "old",
        "max_age": ns(settings.result_ttl_s),
        "max_msgs_per_subject": 1,
        "allow_msg_counter": True,
    }
    dead = {
        "name": names.dead_stream,
        "subjects": [names.dead],
        "discard": "old",
        "max_age": ns(settings.dead_letter_ttl_s),
        "duplicate_window": ns(min(settings.dead_letter_ttl_s, settings.result_ttl_s)),
        "allow_direct": True,
    }
    fleet = {
        "name": names.fleet_stream,
        "subjects": [names.beat(">")],
        "discard": "new",
        "max_age": ns(max(60.0, 12 * settings.lease_s)),
        "max_msgs_per_subject": 1,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
    }
    pool = {
        "name": names.pool_stream,
        "subjects": [names.pool_entries],
        "discard": "new",
        "max_msgs_per_subject": 1,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_msg_ttl": True,
    }
    return (common | queue, *(limits | stream for stream in (result, strike, dead, fleet, pool)))


async def ensure_streams(link: Link, names: Names, settings: BusSettings) -> str:
    """Makes sure that every stream exists as configured.

    Returns:
        When the stream of the queues was made, by the broker's clock: another one is another stream.

    Raises:
        TopologyMismatch: one exists with other settings.
        BusUnavailable: the broker has no JetStream, or does not answer.
    """
    until = time.monotonic() + settings.connect_timeout_s
    while True:
        try:
            made = await asyncio.gather(*(_ensure_stream(link, wanted) for wanted in streams(names, settings)))
            return made[0]
        except NoResponders as error:
            # A broker that just started has no JetStream yet; one without JetStream never has.
            if time.monotonic() > until:
                raise BusUnavailable(f"{error}; is JetStream switched on?") from None
            await asyncio.sleep(_RETRY_S)


async def ensure_source(link: Link, names: Names, settings: BusSettings, source: str) -> None:
    """Makes sure that a worker's, or a shared lane's, durable exists as configured.

    The broker forgets a durable that nobody used for a result's life: then
    also its questions have expired long ago.
    """
    stream, durable, subject = names.queue_stream, names.durable(source), names.source(source)
    wanted = {
        "name": durable,
        "durable_name": durable,
        "filter_subject": subject,
        "ack_policy": "explicit",
        "ack_wait": ns(settings.ack_wait_s),
        "deliver_policy": "all",
        "max_deliver": -1,
        "max_ack_pending": -1,
        "inactive_threshold": ns(max(settings.result_ttl_s, 600.0)),
    }
    request = {"stream_name": stream, "action": "create", "config": wanted}
    try:
        await link.api(f"CONSUMER.CREATE.{stream}.{durable}.{subject}", request)
    except ApiError as error:
        if error.err_code not in _CONSUMER_DIFFERS:
            raise
        info = await link.api(f"CONSUMER.INFO.{stream}.{durable}")
        _compare(f"consumer {durable}", wanted, info["config"])


async def _ensure_stream(link: Link, wanted: Mapping[str, Any]) -> str:
    name = wanted["name"]
    try:
        info = await link.api(f"STREAM.CREATE.{name}", wanted)
    except ApiError as error:
        if error.err_code != _STREAM_DIFFERS:
            raise TopologyMismatch(f"stream {name} was refused by the broker: {error}") from None
        info = await link.api(f"STREAM.INFO.{name}")
        _compare(f"stream {name}", wanted, info["config"])
    return str(info["created"])


def _compare(what: str, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Raises if a field that we set differs; a field that the broker leaves out is unset."""
    differs = [
        f"{field} is {found.get(field)!r} at the broker, {value!r} here"
        for field, value in wanted.items()
        if found.get(field) != value
    ]
    if differs:
        raise TopologyMismatch(f"{what} exists with other settings: {'; '.join(differs)}")
