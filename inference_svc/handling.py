"""The tasks of a worker's questions. A fault in one ends that question's hold and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

from inference_svc import telling
from inference_svc.hands import Held

log = logging.getLogger(__name__)


class Handling:
    """Runs what is done for questions.

    Args:
        let_go: Called with a question whose handling failed: it comes back after its ack wait.
    """

    def __init__(self, let_go: Callable[[Held], None]) -> None:
        self._let_go = let_go
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(
        self, work: Coroutine[None, None, None], held: Held | None, after: Callable[[], None] | None = None
    ) -> None:
        """Begins a task.

        Args:
            held: The question that it is for, if a fault in it should end the hold.
            after: Called when it has ended, however it did.
        """
        task = asyncio.get_running_loop().create_task(self._guarded(work, held))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # of a task that was cancelled before it began
        if after is not None:
            task.add_done_callback(lambda _: after())

    async def close(self) -> None:
        """Ends all tasks."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _guarded(self, work: Coroutine[None, None, None], held: Held | None) -> None:
        try:
            await work
        except Exception:
            extra = telling.facts_of(held) if held is not None else None
            log.exception("a question's handling failed; it comes back after its ack wait", extra=extra)
            if held is not None:
                self._let_go(held)
