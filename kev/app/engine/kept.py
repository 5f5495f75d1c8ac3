"""The worker of an engine, and who follows it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from inference_svc.worker import Worker, WorkerFailed
from kev.bus.messages import READY

log = logging.getLogger(__name__)
RETRY_S = 5.0
"""A pause between workers that fail quickly."""


class KeptWorker:
    """A worker that is followed by another one when it ends on an error.

    So an engine does what a cluster does with a worker's process. What the worker had in hand comes back after its
    ack wait and is tried again; a question that no worker survives ends with an outcome that says so.

    Args:
        make: Makes a worker that was not started. All have the same id, and the same model.
    """

    def __init__(self, make: Callable[[], Worker]) -> None:
        self._make = make
        self.worker = make()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts the first one.

        Raises:
            NotServed: see ``Worker.start``.
        """
        await self.worker.start()
        self._running = asyncio.create_task(self._keep(), name="worker")

    async def close(self) -> None:
        """Ends the worker; nobody follows it."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self.worker.close()

    @property
    def healthy(self) -> bool:
        """Whether a worker serves and its model advances."""
        return self.worker.state == READY and self.worker.healthy

    async def _keep(self) -> None:
        while await self._failed():
            while not await self._followed():  # noqa: ASYNC110 - nothing tells when one could begin
                await asyncio.sleep(RETRY_S)

    async def _failed(self) -> bool:
        """Waits for the worker's end; False if it was closed or drained."""
        began = time.monotonic()
        try:
            await self.worker.run()
        except WorkerFailed as error:
            log.error("%s; another worker follows", error)
        except Exception:
            log.exception("the worker ends on an error; another one follows")
        else:
            return False
        if time.monotonic() - began < RETRY_S:  # one that fails at once shall not be followed at once
            await asyncio.sleep(RETRY_S)
        return True

    async def _followed(self) -> bool:
        """Puts another one in the place of the worker; False if that is not possible now."""
        try:
            await self.worker.close()
            if self.worker.core.alive:
                log.error("the model thread hangs; no other one may use its model")
                return False
            self.worker = self._make()
            await self.worker.start()
        except Exception:
            log.exception("no worker could follow; the next one is tried in %s seconds", RETRY_S)
            return False
        return True
