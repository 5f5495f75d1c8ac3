"""Who listens to what inside one process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Listener(Generic[T]):
    """One registration in a ``Topic``; a ``Subscription`` of the bus."""

    def __init__(self, topic: Topic[T], number: int, call: Callable[[T], None]) -> None:
        self._topic = topic
        self._number = number
        self._call = call

    def run(self, message: T) -> None:
        """Calls back, unless it was closed in the meantime."""
        if self._topic.has(self._number):
            self._call(message)

    async def close(self) -> None:
        """Ends it; no callback runs afterwards."""
        self._topic.remove(self._number)


class Topic(Generic[T]):
    """Delivers every message to every listener, each in its own turn of the
    event loop: a callback that fails cannot harm the sender."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._listeners: dict[int, Listener[T]] = {}

    def add(self, call: Callable[[T], None]) -> Listener[T]:
        """Starts to listen."""
        number = next(self._numbers)
        self._listeners[number] = Listener(self, number, call)
        return self._listeners[number]

    def send(self, message: T) -> None:
        """Sends a message to all listeners."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners.values():
            loop.call_soon(listener.run, message)

    def has(self, number: int) -> bool:
        """Whether a listener is still there."""
        return number in self._listeners

    def remove(self, number: int) -> None:
        """Ends a listener."""
        self._listeners.pop(number, None)

    def clear(self) -> None:
        """Ends all listeners."""
        self._listeners.clear()
