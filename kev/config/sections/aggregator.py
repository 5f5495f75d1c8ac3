"""``aggregator``: results."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kev.config.sections.base import Address, Count, Milliseconds, Section
from kev.domain.question import ResultMode


class AggregatorSettings(Section):
    """``aggregator``: results."""

    listen: Address = "127.0.0.1:50052"
    """Where the aggregator serves gRPC."""
    mode: ResultMode = ResultMode.SLOT_MAP
    """Order of the results, where a batch names none."""
    timeout_ms: Milliseconds = 60_000
    """A question's time from acceptance to deadline, where it names none."""
    grace_ms: Annotated[int, Field(ge=0, le=60_000)] = 2_000
    """How long after its deadline a slot counts as timed out for readers."""
    reader_buffer: Count = 1024
    """Frames that may wait for one slow reader."""
