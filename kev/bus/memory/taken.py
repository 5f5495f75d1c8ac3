"""What a worker holds of the memory bus: a question in its hands, and its ear for catch-up requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kev.bus.checks import Bells, bells_for_return
from kev.bus.memory.queues import Entry, Queues
from kev.bus.messages import Piece, QueuedQuestion

Texts = Callable[[str], Sequence[Piece]]


class MemoryTaken:
    """A question in a worker's hands. See ``port.Taken``.

    Args:
        now: The bus's clock, seconds.
        time: The same while the bus is open; raises ``BusUnavailable`` once it is closed.
        ring: Rings these bells.
    """

    def __init__(
        self,
        entry: Entry,
        queues: Queues,
        now: Callable[[], float],
        time: Callable[[], float],
        ring: Callable[[Bells], None],
    ) -> None:
        self._entry = entry
        self._queues = queues
        self._now, self._time, self._ring = now, time, ring
        self.attempt = entry.holder
        self.behind = queues.waiting(entry.question.lane.queue)
        self.traceparent = entry.traceparent

    @property
    def question(self) -> QueuedQuestion:
        """What was taken."""
        return self._entry.question

    @property
    def held(self) -> bool:
        """Whether the ack wait is still running and nothing was answered yet."""
        return self._queues.holds(self._entry, self.attempt, self._now())

    async def ack(self) -> None:
        """See ``Taken.ack``."""
        self._time()
        if self.held:
            self._queues.ack(self._entry)

    async def progress(self) -> None:
        """See ``Taken.progress``."""
        now = self._time()
        if self.held:
            self._queues.progress(self._entry, now)

    async def give_back(self) -> None:
        """See ``Taken.give_back``."""
        self._time()
        if self.held:
            self._queues.give_back(self._entry)
            self._ring(bells_for_return(self.question))


class TextsListener:
    """A registration of ``on_catch_up``."""

    def __init__(self, registry: list[TextsListener], texts: Texts) -> None:
        self._registry = registry
        self.texts = texts
        registry.append(self)

    async def close(self) -> None:
        """Ends it."""
        if self in self._registry:
            self._registry.remove(self)
