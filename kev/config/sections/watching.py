"""``metrics``, ``log`` and ``trace``: what an operator sees."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from kev.config.sections.base import Port, Section


class LogFormat(StrEnum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


def _collector(text: str) -> str:
    if text and not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", text):
        raise ValueError("must be http://HOST:PORT or https://HOST:PORT, perhaps with a path; empty is off")
    return text


class MetricsSettings(Section):
    """``metrics``: Prometheus endpoint of a service; port 0 is off."""

    host: str = "127.0.0.1"
    """Where a service serves ``/metrics``."""
    port: Port = 0
    """Its port; 0 is off. ``kev up`` counts on from it, one port a process."""


class LogSettings(Section):
    """``log``: what goes to stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe lines that are written."""
    format: LogFormat = LogFormat.TEXT
    """Lines for people, or one JSON object a line."""


class TraceSettings(Section):
    """``trace``: spans of requests, for a collector of OpenTelemetry. Needs the extra ``trace``."""

    endpoint: Annotated[str, AfterValidator(_collector)] = ""
    """Where spans go, OTLP over HTTP: ``http://HOST:4318``; empty is off."""
    sample: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    """Share of the traces that begin here; a caller's own trace is followed as it says."""
