"""Questions that are on their way from the queues to the core. Event loop only.

An idle core begins a forward with the first question that reaches it. Where more
of them are in the worker's hands already, or are being taken, that forward would
be a small one, and all others would wait for it. So the core is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Arrivals:
    """Counts them.

    Args:
        tell: Gets whether any is on its way, when that changes.
    """

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell
        self._count = 0

    def begin(self) -> Arrival:
        """From now on a question is on its way."""
        return Arrival(self._change)

    @contextmanager
    def possible(self) -> Iterator[None]:
        """While more may be found."""
        arrival = self.begin()
        try:
            yield
        finally:
            arrival.over()

    def _change(self, by: int) -> None:
        before, self._count = self._count > 0, self._count + by
        if (now := self._count > 0) is not before:
            self._tell(now)


class Arrival:
    """A question on its way."""

    def __init__(self, change: Callable[[int], None]) -> None:
        self._change = change
        self._open = True
        change(1)

    def over(self) -> None:
        """It has arrived, or takes too long to be waited for. Doing it twice does nothing."""
        if self._open:
            self._open = False
            self._change(-1)
