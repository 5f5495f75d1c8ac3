"""The fleet: workers beat into a KV bucket, everybody watches with a clock of their own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping

from nats.aio.msg import Msg

from kev.bus.checks import check_worker
from kev.bus.feed import BusStats
from kev.bus.messages import WorkerLease, encode
from kev.bus.nats.link import Link
from kev.bus.nats.replies import ended, seconds_of, status_of
from kev.bus.nats.subjects import Names

_GONE = {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}


class Beats:
    """Who has beaten, and when by my clock. Pure: time is passed in."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._seen: dict[str, tuple[float, WorkerLease]] = {}
        self._lost_at: float | None = None

    def beat(self, lease: WorkerLease, at: float) -> None:
        """A beat was seen; an older one never replaces a newer one."""
        known = self._seen.get(lease.worker_id)
        if known is None or at >= known[0]:
            self._seen[lease.worker_id] = (at, lease)

    def gone(self, worker_id: str) -> None:
        """A worker took its leave."""
        self._seen.pop(worker_id, None)

    def lost(self, now: float) -> None:
        """The connection is away: beats cannot be seen."""
        if self._lost_at is None:
            self._lost_at = now

    def back(self, now: float) -> None:
        """The connection is back: who was alive when it went gets a new lease, because
        its beats since then could not arrive."""
        if self._lost_at is not None:
            alive = self.alive(self._lost_at)
            self._seen |= {worker_id: (now, lease) for worker_id, lease in alive.items()}
        self._lost_at = None

    def alive(self, now: float) -> dict[str, WorkerLease]:
        """Workers that have beaten within a lease. While the connection is away time stands still."""
        now = now if self._lost_at is None else min(now, self._lost_at)
        return {name: lease for name, (at, lease) in self._seen.items() if now < at + self._lease_s}


class Fleet:
    """Beats of this process and of all others."""

    def __init__(self, link: Link, names: Names, lease_s: float, stats: BusStats) -> None:
        self._link = link
        self._names = names
        self._stats = stats
        self._beats = Beats(lease_s)
        self._watching: asyncio.Task[None] | None = None
        link.on_lost.append(lambda: self._beats.lost(time.monotonic()))
        link.on_back.append(lambda: self._beats.back(time.monotonic()))

    async def announce(self, lease: WorkerLease) -> None:
        """See ``Bus.announce``."""
        check_worker(lease.worker_id)
        await self._link.store(self._names.beat(lease.worker_id), encode(lease))

    async def withdraw(self, worker_id: str) -> None:
        """See ``Bus.withdraw``."""
        check_worker(worker_id)
        await self._link.store(self._names.beat(worker_id), b"", _GONE)

    async def alive(self) -> Mapping[str, WorkerLease]:
        """See ``Bus.fleet``. The first call starts the watch."""
        self._link.check()
        if self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())
        try:
            await asyncio.shield(self._watching)
        except Exception:
            self._watching = None
            raise
        return self._beats.alive(time.monotonic())

    async def _watch(self) -> None:
        """Listens first, then reads what there is: no beat is missed in between.

        The age of a beat that was there before is told by the broker's clock
        alone, so that a dead worker is not born again for every new watcher.
        """
        listening = await self._link.listen(self._names.beat("*"), self._hear)
        try:
            await self._link.flush()
            request = json.dumps({"multi_last": [self._names.beat("*")]}).encode()
            subject = f"$JS.API.DIRECT.GET.{self._names.fleet_stream}"
            replies = await self._link.gather(subject, request, ended)
            info = await self._link.api(f"STREAM.INFO.{self._names.fleet_stream}")
        except BaseException:
            await listening.close()
            raise
        now, broker_now = time.monotonic(), seconds_of(info["ts"])
        for reply in replies:
            if not status_of(reply) and reply.headers is not None:
                self._note(reply, now - max(0.0, broker_now - seconds_of(reply.headers["Nats-Time-Stamp"])))

    def _hear(self, message: Msg) -> None:
        self._note(message, time.monotonic())

    def _note(self, message: Msg, at: float) -> None:
        if not message.data:
            if "Nats-Subject" not in (message.headers or {}):
                self._beats.gone(message.subject.rpartition(".")[2])
            return
        if (lease := self._stats.decoded(message.data, WorkerLease)) is not None:
            self._beats.beat(lease, at)
