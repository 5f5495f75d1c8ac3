"""The embedded broker of a local cluster, kept alive like its services."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from kev.app.cluster.backoff import Backoff
from kev.app.cluster.child import Say
from kev.bus.nats.server import LocalNats
from kev.domain.errors import BusUnavailable

LOOK_S = 0.25


class Broker:
    """A ``LocalNats`` that is started again on the same store and port when it dies."""

    def __init__(self, port: int, directory: Path | None, say: Say) -> None:
        self._nats = LocalNats(directory, port=port)
        self._say = say
        self._backoff = Backoff()
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where the services connect."""
        return self._nats.url

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._nats.pid

    async def start(self) -> None:
        """Starts the server. It blocks the loop for a moment: the kernel binds the
        server's life to the thread that starts it, and that must be the main one.

        Raises:
            BusUnavailable: it did not start.
        """
        self._nats.start()
        self._task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Ends the server and removes a temporary store."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await asyncio.to_thread(self._nats.close)

    async def _keep(self) -> None:
        began = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(LOOK_S)
            if self._alive():
                continue
            now = asyncio.get_running_loop().time()
            pause = self._backoff.after(now - began)
            self._say("nats", f"it died; starts again in {pause:g} s")
            await asyncio.sleep(pause)
            began = now
            self._restart()

    def _restart(self) -> None:
        try:
            self._nats.stop()
            self._nats.start()
        except BusUnavailable as error:
            self._say("nats", str(error))
        else:
            self._say("nats", "is ready again")

    def _alive(self) -> bool:
        """Looks without reaping: the end is the owner's to collect."""
        if self._nats.pid is None:
            return False
        try:
            return os.waitid(os.P_PID, self._nats.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False
