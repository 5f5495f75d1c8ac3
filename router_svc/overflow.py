"""What happens when no channel has room: the line of waiters, and when to try again. Pure.

``wait`` holds the call in a bounded first-in first-out line until a question
finds room or its deadline passes; ``reject`` sends it away with a delay.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from kev.domain.errors import Overloaded

UNKNOWN_RATE_MS = 1_000
"""Delay that is told while nothing has drained yet."""
LEAST_MS, MOST_MS = 50, 30_000
_SMOOTHING = 0.3


class DrainRate:
    """Questions that leave the queues per second, smoothed over the polls in which there were any to leave: that empty
    queues drain nothing does not say that full ones drain slowly."""

    def __init__(self) -> None:
        self.per_second = 0.0
        self._at: float | None = None
        self._total = 0

    def update(self, now: float, total: int, arrived: int) -> None:
        """A poll.

        Args:
            now: Monotonic seconds.
            total: Questions in the queues now.
            arrived: Own questions that went in since the poll before.
        """
        waited = self._total + arrived
        if self._at is not None and now > self._at and waited:
            rate = max(0, waited - total) / (now - self._at)
            self.per_second += _SMOOTHING * (rate - self.per_second)
        self._at, self._total = now, total

    def retry_after_ms(self, missing: int) -> int:
        """Milliseconds until ``missing`` places should have become free."""
        if self.per_second <= 0.01:
            return UNKNOWN_RATE_MS
        delay = math.ceil(1000 * missing / self.per_second)
        return min(MOST_MS, max(LEAST_MS, delay))


@dataclass(eq=False, slots=True)
class Ticket:
    """One held submit. ``wake`` is called when it should look again; ``count`` is its open questions."""

    wake: Callable[[], None]
    count: int


class Line:
    """The submits that wait for room, first in, first out.

    Args:
        most: Most waiters; the next one is refused.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._tickets: dict[Ticket, None] = {}

    def __len__(self) -> int:
        return len(self._tickets)

    @property
    def questions(self) -> int:
        """Questions that wait."""
        return sum(ticket.count for ticket in self._tickets)

    def check(self, rate: DrainRate) -> None:
        """Raises ``Overloaded`` if one more may not wait."""
        if len(self._tickets) >= self._most:
            delay = rate.retry_after_ms(self.questions + 1)
            raise Overloaded(f"every queue is full and {len(self._tickets)} submits wait already", delay)

    def enter(self, wake: Callable[[], None], count: int, rate: DrainRate) -> Ticket:
        """Joins the end of the line.

        Raises:
            Overloaded: the line is at its bound.
        """
        self.check(rate)
        ticket = Ticket(wake, count)
        self.move_in(ticket)
        return ticket

    def move_in(self, ticket: Ticket) -> None:
        """Joins the end of the line from another one; who was let in once is not refused later."""
        self._tickets[ticket] = None

    def first(self, ticket: Ticket) -> bool:
        """Whether it is this waiter's turn."""
        return next(iter(self._tickets), None) is ticket

    def leave(self, ticket: Ticket) -> None:
        """Leaves the line, from any place; the next one is woken."""
        self._tickets.pop(ticket, None)
        self.wake()

    def wake(self) -> None:
        """Room may have appeared: the first looks again."""
        first = next(iter(self._tickets), None)
        if first is not None:
            first.wake()
