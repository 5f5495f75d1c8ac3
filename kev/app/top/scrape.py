"""Reads the metrics endpoints of services."""

from __future__ import annotations

import asyncio
import socket
import time
import urllib.request
from collections.abc import Sequence

from kev.app.top.figures import Reading

PATIENCE_S = 3.0


async def read(addresses: Sequence[str]) -> Reading:
    """One reading of all of them, at once. A name that stands for several replicas means all of these."""
    found = await asyncio.gather(*(asyncio.to_thread(_expanded, address) for address in addresses))
    endpoints = list(dict.fromkeys(endpoint for group in found for endpoint in group))
    texts = await asyncio.gather(*(asyncio.to_thread(_text, endpoint) for endpoint in endpoints))
    return Reading.of(time.monotonic(), dict(zip(endpoints, texts, strict=True)))


def _expanded(address: str) -> list[str]:
    host, _, port = address.rpartition(":")
    try:
        places = socket.getaddrinfo(host, int(port), family=socket.AF_INET, type=socket.SOCK_STREAM)
    except OSError:
        return [address]
    return sorted({f"{where[0]!s}:{port}" for *_, where in places})


def _text(endpoint: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=PATIENCE_S) as reply:
            text: str = reply.read().decode()
            return text
    except (OSError, ValueError):
        return None
