"""The NATS adapter of the bus port: puts the parts together."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from nats.aio.msg import Msg

from kev.bus.checks import ALL_BELLS, check_worker
from kev.bus.feed import BusStats
from kev.bus.messages import (
    READY,
    Bell,
    CancelHint,
    ContextPool,
    DeadLetter,
    Delta,
    Lane,
    Manifest,
    Piece,
    PoolInfo,
    QueuedQuestion,
    RequestRecord,
    WorkerLease,
    encode,
)
from kev.bus.nats.dead import Dead
from kev.bus.nats.fleet import Fleet
from kev.bus.nats.link import Link
from kev.bus.nats.listening import Listening
from kev.bus.nats.pools import Pools
from kev.bus.nats.renewal import Renewal
from kev.bus.nats.results import Results
from kev.bus.nats.stream import Streaming
from kev.bus.nats.subjects import Names
from kev.bus.nats.submit import Submit
from kev.bus.nats.take import Take
from kev.bus.nats.topology import ensure_streams
from kev.bus.port import Claim, Subscription, Taken
from kev.bus.settings import BusSettings
from kev.domain.ids import long_queue
from kev.domain.outcome import Outcome

log = logging.getLogger(__name__)


class NatsBus:
    """The bus over NATS JetStream. Made by ``NatsBus.connect``; one event loop."""

    def __init__(self, link: Link, settings: BusSettings, stats: BusStats, queues_made: str) -> None:
        names = Names(settings.namespace)
        self.settings = settings
        self.stats = stats
        self._link = link
        self._names = names
        self._submit = Submit(link, names, settings)
        self._results = Results(link, names, settings.result_ttl_s, stats)
        self._streaming = Streaming(link, names, settings, stats)
        self._dead = Dead(link, names)
        self._pools = Pools(link, names, stats)
        self._fleet = Fleet(link, names, settings.lease_s, stats)
        self._take = Take(link, names, settings, stats, bury=self._dead.bury, ring=self._submit.ring)
        self._renewal = Renewal(link, names, settings, queues_made, self._take.forget)

    @classmethod
    async def connect(cls, settings: BusSettings | None = None) -> NatsBus:
        """Connects, and creates or compares every stream.

        Raises:
            BusUnavailable: no broker, credentials refused, or no JetStream.
            TopologyMismatch: the broker's streams were made with other settings.
        """
        settings, stats = settings or BusSettings(), BusStats()
        link = await Link.open(settings, stats)
        try:
            queues_made = await ensure_streams(link, Names(settings.namespace), settings)
        except BaseException:
            await link.close()
            raise
        return cls(link, settings, stats, queues_made)

    @property
    def connected(self) -> bool:
        """Whether the broker can be reached right now, as far as is known."""
        return self._link.connected

    # -- a request's life ----------------------------------------------------------
    async def open_request(self, manifest: Manifest) -> Claim:
        """See ``Bus.open_request``."""
        return await self._results.open(manifest)

    async def enqueue(self, questions: Sequence[QueuedQuestion]) -> frozenset[Lane]:
        """See ``Bus.enqueue``."""
        return await self._submit.enqueue(questions)

    async def put_in(self, rid: str, slots: Sequence[int]) -> frozenset[int]:
        """See ``Bus.put_in``."""
        return await self._submit.put_in(rid, slots)

    async def drop_request(self, rid: str, claim: int) -> None:
        """See ``Bus.drop_request``."""
        await self._results.drop(rid, claim)

    async def depths(self) -> Mapping[Lane, int]:
        """See ``Bus.depths``."""
        return await self._submit.depths()

    @property
    def oldest_s(self) -> float:
        """See ``Bus.oldest_s``; by the broker's clock."""
        return self._submit.oldest_s

    # -- outcomes ------------------------------------------------------------------
    async def settle(self, outcome: Outcome) -> Outcome:
        """See ``Bus.settle``."""
        return await self._results.settle(outcome)

    async def outcome(self, rid: str, slot: int) -> Outcome | None:
        """See ``Bus.outcome``."""
        return await self._results.outcome(rid, slot)

    async def stands(self, rid: str) -> bool:
        """See ``Bus.stands``."""
        return await self._results.stands(rid)

    async def request(self, rid: str) -> RequestRecord | None:
        """See ``Bus.request``."""
        return await self._results.request(rid)

    # -- streaming -----------------------------------------------------------------
    async def publish_delta(self, delta: Delta) -> None:
        """See ``Bus.publish_delta``."""
        await self._streaming.publish(delta)

    def follow(self, rid: str) -> AbstractAsyncContextManager[AsyncIterator[Delta | Outcome]]:
        """See ``Bus.follow``."""
        return self._streaming.follow(rid)

    async def catch_up(self, rid: str) -> tuple[Piece, ...]:
        """See ``Bus.catch_up``."""
        record = await self._results.request(rid)
        open_slots = frozenset(record.open_slots()) if record is not None else frozenset()
        if not open_slots:
            return ()
        return await self._streaming.catch_up(rid, open_slots, len(await self.fleet()))

    # -- a worker's work -----------------------------------------------------------
    async def take(self, source: str, most: int) -> Sequence[Taken]:
        """See ``Bus.take``."""
        return await self._take.take(source, most)

    async def strike(self, rid: str, slot: int) -> int:
        """See ``Bus.strike``."""
        return await self._dead.strike(rid, slot)

    async def excuse(self, rid: str, slot: int) -> None:
        """See ``Bus.excuse``."""
        await self._dead.excuse(rid, slot)

    async def dead_letter(self, question: QueuedQuestion, reason: str, strikes: int) -> None:
        """See ``Bus.dead_letter``."""
        await self._dead.dead_letter(question, reason, strikes)

    async def dead_letters(self) -> tuple[DeadLetter, ...]:
        """All dead letters, oldest first; for the operator."""
        return await self._dead.letters()

    async def on_bell(self, worker_id: str, ring: Callable[[frozenset[str]], None]) -> Subscription:
        """See ``Bus.on_bell``. Also rings after a reconnect: a bell may have been missed."""
        check_worker(worker_id)

        def hear(message: Msg) -> None:
            ring(self._bell(message.data).queues)

        listenings = [await self._link.listen(self._names.bell(name), hear) for name in (worker_id, "any")]
        await self._link.flush()
        return _BellListening(self._link, listenings, lambda: ring(frozenset()))

    def _bell(self, data: bytes) -> Bell:
        """What a bell says. One that says nothing, as of a neighbouring version, is heard all the same."""
        return (self.stats.decoded(data, Bell) if data else None) or Bell()

    async def on_cancel(self, cancel: Callable[[CancelHint], None]) -> Subscription:
        """See ``Bus.on_cancel``."""

        def hear(message: Msg) -> None:
            if (hint := self.stats.decoded(message.data, CancelHint)) is not None:
                cancel(hint)

        listening = await self._link.listen(self._names.cancel("*"), hear)
        await self._link.flush()
        return listening

    async def hint_cancel(self, hint: CancelHint) -> None:
        """See ``Bus.hint_cancel``."""
        await self._link.send(self._names.cancel(hint.rid), encode(hint))

    async def on_catch_up(self, texts: Callable[[str], Sequence[Piece]]) -> Subscription:
        """See ``Bus.on_catch_up``."""
        listening = await self._streaming.on_catch_up(texts)
        await self._link.flush()
        return listening

    # -- context pools -------------------------------------------------------------
    async def put_pool(self, pool: ContextPool) -> bool:
        """See ``Bus.put_pool``."""
        return await self._pools.put(pool)

    async def pool(self, key: str) -> ContextPool | None:
        """See ``Bus.pool``."""
        return await self._pools.get(key)

    async def pool_info(self, key: str) -> PoolInfo | None:
        """See ``Bus.pool_info``."""
        return await self._pools.info(key)

    async def pools(self, tenant: str) -> tuple[PoolInfo, ...]:
        """See ``Bus.pools``."""
        return await self._pools.of(tenant)

    async def delete_pool(self, key: str) -> bool:
        """See ``Bus.delete_pool``."""
        return await self._pools.delete(key)

    # -- fleet ---------------------------------------------------------------------
    async def announce(self, lease: WorkerLease) -> None:
        """See ``Bus.announce``."""
        await self._fleet.announce(lease)
        if lease.state != READY:
            await self._submit.ring(ALL_BELLS)
        await self._take.prepare(lease.worker_id)
        if lease.long_channels:
            await self._take.prepare(long_queue(lease.worker_id))

    async def withdraw(self, worker_id: str) -> None:
        """See ``Bus.withdraw``."""
        await self._fleet.withdraw(worker_id)
        await self._submit.ring(ALL_BELLS)

    async def fleet(self) -> Mapping[str, WorkerLease]:
        """See ``Bus.fleet``."""
        return await self._fleet.alive()

    async def close(self) -> None:
        """See ``Bus.close``."""
        self._streaming.end()
        await self._renewal.close()
        await self._link.close()


class _BellListening:
    """A registration of ``on_bell``."""

    def __init__(self, link: Link, listenings: Sequence[Listening], ring: Callable[[], None]) -> None:
        self._link = link
        self._listenings = listenings
        self._ring = ring
        link.on_back.append(ring)

    async def close(self) -> None:
        """Ends it."""
        if self._ring in self._link.on_back:
            self._link.on_back.remove(self._ring)
        for listening in self._listenings:
            await listening.close()
