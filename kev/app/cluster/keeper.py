"""Keeps one service of a local cluster alive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from kev.app.cluster.backoff import Backoff
from kev.app.cluster.child import Child, ChildDied, Say, Spec, how_it_ended


class Keeper:
    """Starts a service, and starts it again whenever it dies, until it is told to stop.

    Args:
        pin: Flags to add once the service was ready for the first time, from its
            ready line: so a free port, once found, stays the same over restarts.
    """

    def __init__(
        self, spec: Spec, say: Say, *, pin: Callable[[Mapping[str, str]], dict[str, str]] = lambda facts: {}
    ) -> None:
        self.spec = spec
        self.restarts = 0
        self._say = say
        self._pin = pin
        self._backoff = Backoff()
        self._child: Child | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the current life."""
        return self._child.pid if self._child else None

    async def start(self) -> Mapping[str, str]:
        """The first start; its failure is the caller's.

        Returns:
            The facts of the ready line.

        Raises:
            ChildDied: it ended before it was ready.
        """
        self._child = Child(self.spec, self._say)
        began = time.monotonic()
        facts = await self._child.start()
        self.spec.flags.update(self._pin(facts))
        self._task = asyncio.create_task(self._keep(began))
        return facts

    async def stop(self) -> None:
        """Ends the service and stops keeping it alive."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._child is not None:
            await self._child.stop()

    async def _keep(self, began: float) -> None:
        while True:
            assert self._child is not None
            why = how_it_ended(await self._child.ended())
            while True:
                pause = self._backoff.after(time.monotonic() - began)
                self._say(self.spec.name, f"{why}; starts again in {pause:g} s")
                await asyncio.sleep(pause)
                self.restarts += 1
                self._child = Child(self.spec, self._say)
                began = time.monotonic()
                try:
                    await self._child.start()
                except ChildDied as error:
                    why = str(error)
                else:
                    self._say(self.spec.name, "is ready again")
                    break
