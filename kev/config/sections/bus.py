"""``bus``: the broker, and the bounds of the queues."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from kev.config.sections.base import Count, Section


def _broker(text: str) -> str:
    if not all(re.fullmatch(r"(nats|tls|ws|wss)://[^\s,]+", part) for part in text.split(",")):
        raise ValueError("must be nats://HOST:PORT (or tls://), several with commas between")
    return text


class BusSection(Section):
    """``bus``: the broker, and the bounds of the queues."""

    url: Annotated[str, AfterValidator(_broker)] = "nats://127.0.0.1:4222"
    """NATS servers with JetStream, with commas between."""
    user: str = ""
    """User of the broker."""
    password: SecretStr = SecretStr("")
    """Password of the broker; better given as ``KEV_BUS_PASSWORD``."""
    queue_bound: Count = 64
    """Most questions in one channel's queue, the running one included."""
    shared_lane_bound: Count = 10_000
    """Most questions in one shared lane."""
    ack_wait_ms: Annotated[int, Field(ge=200, le=3_600_000)] = 10_000
    """A question whose worker shows no progress for so long goes to another."""
    lease_ms: Annotated[int, Field(ge=200, le=3_600_000)] = 5_000
    """A worker that has not beaten for so long is taken for dead."""
    result_ttl_ms: Annotated[int, Field(ge=1000, le=2**40)] = 3_600_000
    """How long requests and outcomes are kept."""
    replicas: Literal[1, 3, 5] = 1
    """Copies of every stream."""
