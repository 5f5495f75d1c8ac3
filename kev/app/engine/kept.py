"""The worker of an engine, and who follows it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from inference_svc.worker import Worker, WorkerFailed

log = logging.getLogger(__name__)
RETRY_S = 5


class KeptWorker:
    """A worker that is followed by another one when its model thread ends on an error.

    So an engine does what a cluster does with a worker's process. What the worker had in hand comes back after its
    ack wait and is tried again; a question that no worker survives ends with an outcome that says so.

    Args:
        make: Makes a worker that was not started. All have the same id.
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
        await self.worker.close()
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    @property
    def healthy(self) -> bool:
        """Whether a worker serves and its model advances."""
        return self.worker.state == "ready" and self.worker.healthy

    async def _keep(self) -> None:
        while await self._failed():
            await self.worker.close()
            while not await self._followed():  # noqa: ASYNC110 - nothing tells when one could begin
                await asyncio.sleep(RETRY_S)

    async def _failed(self) -> bool:
        """Waits for the worker's end; False if it was closed or drained."""
        try:
            await self.worker.run()
        except WorkerFailed as error:
            log.error("%s; another worker follows", error)
            return True
        except Exception:
            log.exception("the worker ends on an error; another one follows")
            return True
        return False

    async def _followed(self) -> bool:
        successor = self._make()
        try:
            await successor.start()
        except BaseException as error:
            await successor.close()
            if not isinstance(error, Exception):
                raise
            log.exception("no worker could follow; the next one is tried in %d seconds", RETRY_S)
            return False
        self.worker = successor
        return True
