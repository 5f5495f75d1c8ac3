"""Streams that are gone are made again: a broker may come back without its disk, or an operator delete one.

What was in them is lost. But whoever asks from then on is served, without a restart of any service.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kev.bus.nats.link import Link
from kev.bus.nats.subjects import Names
from kev.bus.nats.topology import ensure_streams
from kev.bus.settings import BusSettings
from kev.domain.errors import BusUnavailable

log = logging.getLogger(__name__)


class Renewal:
    """Makes the streams of a connection again, after each reconnect and when the broker says that one is missing.

    Args:
        queues_made: When the stream of the queues was made, as ``ensure_streams`` says it.
        lost: Called when it is another one than before.
    """

    def __init__(
        self, link: Link, names: Names, settings: BusSettings, queues_made: str, lost: Callable[[], None]
    ) -> None:
        self._link = link
        self._names = names
        self._settings = settings
        self._queues_made = queues_made
        self._lost = lost
        self._task: asyncio.Task[None] | None = None
        self._wanted = False
        link.on_back.append(self._begin)
        link.on_gone.append(self._begin)

    async def close(self) -> None:
        """Ends it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _begin(self) -> None:
        self._wanted = True  # also while one is under way: it may have asked before
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while self._wanted:
            self._wanted = False
            await self._renew()

    async def _renew(self) -> None:
        try:
            made = await ensure_streams(self._link, self._names, self._settings)
        except BusUnavailable as error:
            log.debug("the streams are looked at again after the next reconnect: %s", error)
        except Exception as error:
            log.error("a stream that is gone cannot be made again: %s", error)
        else:
            if made != self._queues_made:
                log.error("the broker has lost the queues: what was in them is gone")
                self._queues_made = made
                self._lost()
