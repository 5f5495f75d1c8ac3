"""Questions that are on their way from the queues to the core. Event loop only.

An idle core begins a forward with the first question that reaches it. Where more
of them wait to be taken, or are being checked, that forward would be a small one,
and all others would wait for it. So the core is told.
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

    def begin(self, soon: bool = True) -> Arrival:
        """A question that is on its way from now on; ``soon``: it will not take long, and may be waited for."""
        arrival = Arrival(self._change)
        arrival.set(soon)
        return arrival

    @contextmanager
    def behind(self) -> Iterator[Arrival]:
        """Those that wait behind the last one taken, while a sweep goes on: ``set`` says whether there are any."""
        arrival = Arrival(self._change)
        try:
            yield arrival
        finally:
            arrival.over()

    def _change(self, by: int) -> None:
        before, self._count = self._count > 0, self._count + by
        if (now := self._count > 0) is not before:
            self._tell(now)


class Arrival:
    """A question on its way, or several that count as one."""

    def __init__(self, change: Callable[[int], None]) -> None:
        self._change = change
        self._open = False

    def set(self, on_its_way: bool) -> None:
        """Whether it is. Saying it twice does nothing."""
        if on_its_way is not self._open:
            self._open = on_its_way
            self._change(1 if on_its_way else -1)

    def over(self) -> None:
        """It has arrived, or never will."""
        self.set(False)
