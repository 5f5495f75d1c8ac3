"""One call for all who ask the same thing at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")
T = TypeVar("T")


class Together(Generic[K, A, T]):
    """Joins questions with one key that are asked before the event loop comes round.

    The call begins after the last of them was asked: nobody gets an answer that
    is older than a call of its own would give.

    Args:
        call: Gets the key and what was asked, in order; all get its answer, or its error.
    """

    def __init__(self, call: Callable[[K, Sequence[A]], Awaitable[T]]) -> None:
        self._call = call
        self._asked: dict[K, tuple[list[A], asyncio.Task[T]]] = {}

    async def ask(self, key: K, what: A) -> T:
        """The answer to what was asked with this key. Whoever is cancelled leaves the others theirs."""
        if key not in self._asked:
            asked: list[A] = []
            task = asyncio.get_running_loop().create_task(self._answer(key, asked))
            task.add_done_callback(_seen)
            self._asked[key] = (asked, task)
        asked, task = self._asked[key]
        asked.append(what)
        return await asyncio.shield(task)

    async def _answer(self, key: K, asked: list[A]) -> T:
        del self._asked[key]  # who asks from here on gets a call of its own
        return await self._call(key, asked)


def _seen(task: asyncio.Task[T]) -> None:
    """An error is nobody's when all who asked have left."""
    if not task.cancelled():
        task.exception()
