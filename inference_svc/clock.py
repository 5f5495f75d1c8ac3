"""The time of a worker: durations from a monotonic clock, stamps for people from the wall."""

from __future__ import annotations

import time


class Clock:
    """Both clocks; tests put their own in its place."""

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Unix milliseconds."""
        return time.time_ns() // 1_000_000
