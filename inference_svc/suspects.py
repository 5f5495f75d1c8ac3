"""Questions that may have killed a worker run one at a time.

If two of them ran side by side, the innocent one would be blamed for the
other's crash, again and again. So each waits for its turn, and its strike is
written down only then. Event loop only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable


class Suspects:
    """Whose turn it is; first come, first served."""

    def __init__(self) -> None:
        self._current: Hashable | None = None
        self._line: deque[tuple[Hashable, asyncio.Future[None]]] = deque()

    async def turn(self, ticket: Hashable, timeout_s: float) -> bool:
        """Waits for its turn, which lasts until ``done``; False if it was stopped or the time ran out."""
        if self._current is None:
            self._current = ticket
            return True
        place = (ticket, asyncio.get_running_loop().create_future())
        self._line.append(place)
        try:
            await asyncio.wait_for(place[1], max(timeout_s, 0.0))
        except TimeoutError:
            return self._current == ticket
        finally:
            if place in self._line:
                self._line.remove(place)
        return self._current == ticket

    def stop(self, ticket: Hashable) -> None:
        """Ends a wait."""
        for waiting, called in self._line:
            if waiting == ticket and not called.done():
                called.set_result(None)

    def done(self, ticket: Hashable) -> None:
        """Ends a turn, if it was this one's; the next one's begins."""
        if self._current != ticket:
            return
        self._current = None
        while self._line and self._current is None:
            following, called = self._line.popleft()
            if not called.done():
                self._current = following
                called.set_result(None)
