"""Results and streams of requests, over any bus. Keeps no truth of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from aggregator_svc import metrics
from aggregator_svc.deadlines import overdue
from aggregator_svc.fanout import Reader
from aggregator_svc.follow import Clock, Follower
from aggregator_svc.order import results_of
from aggregator_svc.telling import Telling
from kev.bus.messages import RequestRecord
from kev.bus.port import Bus
from kev.config.settings import Settings
from kev.domain.errors import BusUnavailable, NotFound
from kev.domain.ids import rid_of
from kev.domain.result import Frame, Results, ResumePoint


def wall_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


class Aggregator:
    """Follows requests for readers. One event loop; any replica serves any request.

    Readers of one request share one ``Follower``, which lives as long as
    somebody reads or waits.

    Args:
        clock: Unix milliseconds; compared with the slots' deadlines.
    """

    def __init__(self, bus: Bus, settings: Settings, *, clock: Clock = wall_ms) -> None:
        self._bus, self._clock = bus, clock
        self._buffer = settings.aggregator.reader_buffer
        self._followers: dict[str, Follower] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def stream(
        self,
        tenant: str,
        request_id: str,
        resume: Iterable[ResumePoint] = (),
        *,
        wait_s: float | None = None,
        traceparent: str = "",
    ) -> AsyncGenerator[Frame, None]:
        """Follows a request; ends after every slot's last frame.

        Args:
            resume: Where the reader stands in slots that it has read before.
            wait_s: Longest stay; open slots then end with a ``pending`` frame.
            traceparent: The reader's span; empty takes the one that accepted the request.

        Raises:
            NotFound: no such request, or another tenant's.
            InvalidArgument: a resume point names no slot of the request.
            BusUnavailable: the broker does not answer, or this replica stops; resume elsewhere.
        """
        async with self.reading(tenant, request_id, resume, traceparent) as reader:
            async for frame in reader.frames(wait_s):
                yield frame

    @asynccontextmanager
    async def reading(
        self, tenant: str, request_id: str, resume: Iterable[ResumePoint] = (), traceparent: str = ""
    ) -> AsyncIterator[Reader]:
        """A reader of a request, for callers that look after its backlog. Errors as ``stream``."""
        points = tuple(resume)
        async with self._following(tenant, request_id) as follower:
            reader = Reader(follower.text, points, self._buffer)
            follower.add(reader, resumed=bool(points))
            metrics.READERS.inc()
            metrics.RESUMES.inc(bool(points))
            telling = Telling("aggregator stream", follower.text.manifest, traceparent)
            try:
                yield reader
            finally:
                telling.end(None if follower.error else follower.text)
                metrics.READERS.dec()
                follower.remove(reader)

    async def results(self, tenant: str, request_id: str, wait_s: float | None = 0.0, traceparent: str = "") -> Results:
        """A request's results in its result mode; open slots are ``pending``.

        Args:
            wait_s: How long to wait for open slots; 0 polls, None waits for
                the end (each slot has a deadline).
            traceparent: As in ``stream``.

        Raises:
            NotFound: no such request, or another tenant's.
            BusUnavailable: the broker does not answer.
        """
        record = await self._settled_record(tenant, request_id)
        if wait_s == 0 or not record.open_slots():
            return results_of(record.manifest, record.outcomes)
        async with self._following(tenant, request_id) as follower:
            telling = Telling("aggregator wait", record.manifest, traceparent)
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await follower.finished.wait()
            finally:
                telling.end(None if follower.error else follower.text)
            if follower.error is not None:
                raise follower.error
            return results_of(follower.text.manifest, follower.text.outcomes())

    async def close(self) -> None:
        """Ends all readers and waiters: they are told to resume elsewhere."""
        self._closed = True
        for follower in self._followers.values():
            follower.stop(_stopping())
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _settled_record(self, tenant: str, request_id: str) -> RequestRecord:
        """The request as the broker holds it. Overdue slots are timed out, and reading makes it so."""
        record = await self._bus.request(rid_of(tenant, request_id))
        if record is None or record.manifest.tenant != tenant:
            raise NotFound(f"request {request_id}: there is none, or it has expired")
        outcomes = dict(record.outcomes)
        for placeholder in overdue(record.manifest, record.open_slots(), self._clock()):
            outcomes[placeholder.slot] = stored = await self._bus.settle(placeholder)
            metrics.PLACEHOLDERS.inc(stored == placeholder)
        return RequestRecord(record.manifest, outcomes)

    @asynccontextmanager
    async def _following(self, tenant: str, request_id: str) -> AsyncIterator[Follower]:
        if self._closed:
            raise _stopping()
        rid = rid_of(tenant, request_id)
        follower = self._followers.get(rid) or self._start(rid, request_id)
        follower.users += 1
        try:
            await follower.opened.wait()
            yield follower
        finally:
            follower.users -= 1
            if not follower.users:
                self._end(rid, follower)

    def _start(self, rid: str, request_id: str) -> Follower:
        follower = Follower(self._bus, rid, request_id, self._clock)
        follower.task = task = asyncio.create_task(follower.run())
        self._followers[rid] = follower
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        metrics.REQUESTS.inc()
        return follower

    def _end(self, rid: str, follower: Follower) -> None:
        """Never waits, so that a cancelled reader cannot leave it undone."""
        if self._followers.get(rid) is follower:
            del self._followers[rid]
        follower.task.cancel()
        metrics.REQUESTS.dec()


def _stopping() -> BusUnavailable:
    return BusUnavailable("this aggregator is stopping; ask again, or resume, at another")
