"""The memory adapter of the bus port."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from kev.bus.checks import ALL_BELLS, Bells, bells_for, check_pool, check_source, check_worker, latest_pieces, unique
from kev.bus.feed import BusStats, Feed
from kev.bus.memory.hub import Topic
from kev.bus.memory.pools import Pools
from kev.bus.memory.queues import Queues
from kev.bus.memory.records import Expiring, Records
from kev.bus.memory.taken import MemoryTaken, Texts, TextsListener
from kev.bus.messages import (
    READY,
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
)
from kev.bus.port import Claim, Subscription, Taken
from kev.bus.settings import BusSettings
from kev.domain.errors import BusUnavailable, NotFound
from kev.domain.outcome import Outcome
from kev.telemetry import traces

log = logging.getLogger(__name__)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryBus:
    """The bus of one process and one event loop. Not thread-safe: call it from
    that loop only. All tiers share one object.

    Args:
        monotonic: Seconds; drives ack waits, leases and TTLs.
        wall_ms: Unix milliseconds; compared with the questions' deadlines.
    """

    def __init__(
        self,
        settings: BusSettings | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        s = settings or BusSettings()
        self.settings = s
        self.stats = BusStats()
        self._now, self._now_ms = monotonic, wall_ms
        self._queues = Queues(
            s.queue_bound,
            s.shared_bound,
            ack_wait_s=s.ack_wait_s,
            dedupe_window_s=s.dedupe_window_s,
            grace_s=s.question_grace_s,
        )
        self._oldest_s = 0.0
        self._records = Records(s.result_ttl_s)
        self._leases: Expiring[str, WorkerLease] = Expiring(s.lease_s)
        self._pools = Pools()
        self._dead: Expiring[tuple[str, int], DeadLetter] = Expiring(s.dead_letter_ttl_s)
        self._bells: Topic[tuple[str, frozenset[str]]] = Topic()
        self._cancels: Topic[CancelHint] = Topic()
        self._feeds: dict[str, list[Feed]] = {}
        self._texts: list[TextsListener] = []
        self._closed = False

    # -- a request's life ----------------------------------------------------------
    async def open_request(self, manifest: Manifest) -> Claim:
        """See ``Bus.open_request``."""
        return self._records.open(manifest, self._time())

    async def enqueue(self, questions: Sequence[QueuedQuestion]) -> frozenset[Lane]:
        """See ``Bus.enqueue``."""
        now, once = self._time(), unique(questions)
        full = self._queues.put(once, now, self._now_ms(), traces.current())
        if not full:
            self._ring(bells_for(once))
        return full

    async def put_in(self, rid: str, slots: Sequence[int]) -> frozenset[int]:
        """See ``Bus.put_in``."""
        return self._queues.known(rid, slots, self._time(), self._now_ms())

    async def drop_request(self, rid: str, claim: int) -> None:
        """See ``Bus.drop_request``."""
        self._records.drop(rid, claim, self._time())

    async def depths(self) -> Mapping[Lane, int]:
        """See ``Bus.depths``."""
        depths = self._queues.depths(self._time(), self._now_ms())
        self._oldest_s = self._queues.oldest_s(self._now_ms())
        return depths

    @property
    def oldest_s(self) -> float:
        """See ``Bus.oldest_s``."""
        return self._oldest_s

    # -- outcomes ------------------------------------------------------------------
    async def settle(self, outcome: Outcome) -> Outcome:
        """See ``Bus.settle``."""
        stored = self._records.settle(outcome, self._time(), lambda written: self._feed(written.rid, written))
        if stored is None:
            raise NotFound(f"request {outcome.request_id}: there is none, or it has expired")
        return stored

    async def outcome(self, rid: str, slot: int) -> Outcome | None:
        """See ``Bus.outcome``."""
        return self._records.outcome(rid, slot, self._time())

    async def stands(self, rid: str) -> bool:
        """See ``Bus.stands``."""
        return await self.request(rid) is not None

    async def request(self, rid: str) -> RequestRecord | None:
        """See ``Bus.request``."""
        return self._records.request(rid, self._time())

    # -- streaming -----------------------------------------------------------------
    async def publish_delta(self, delta: Delta) -> None:
        """See ``Bus.publish_delta``."""
        self._time()
        self._feed(delta.rid, delta)

    def follow(self, rid: str) -> AbstractAsyncContextManager[AsyncIterator[Delta | Outcome]]:
        """See ``Bus.follow``."""
        return self._following(rid)

    @asynccontextmanager
    async def _following(self, rid: str) -> AsyncIterator[AsyncIterator[Delta | Outcome]]:
        self._time()
        feed = Feed(self.settings.follow_buffer, self.stats)
        self._feeds.setdefault(rid, []).append(feed)
        try:
            yield feed
        finally:
            feed.end()
            self._feeds[rid].remove(feed)
            if not self._feeds[rid]:
                del self._feeds[rid]

    async def catch_up(self, rid: str) -> tuple[Piece, ...]:
        """See ``Bus.catch_up``."""
        self._time()
        pieces: list[Piece] = []
        for listener in tuple(self._texts):
            try:
                pieces.extend(listener.texts(rid))
            except Exception:
                log.exception("a worker could not answer a catch-up request")
        return latest_pieces(pieces)

    # -- a worker's work -----------------------------------------------------------
    async def take(self, source: str, most: int) -> Sequence[Taken]:
        """See ``Bus.take``."""
        check_source(source)
        taken: list[Taken] = []
        while len(taken) < most:
            entry = self._queues.take(source, self._time(), self._now_ms())
            if entry is None:
                break
            taken.append(MemoryTaken(entry, self._queues, self._now, self._time, self._ring))
        return taken

    async def strike(self, rid: str, slot: int) -> int:
        """See ``Bus.strike``."""
        return self._records.strike(rid, slot, self._time())

    async def excuse(self, rid: str, slot: int) -> None:
        """See ``Bus.excuse``."""
        self._records.strike(rid, slot, self._time(), -1)

    async def dead_letter(self, question: QueuedQuestion, reason: str, strikes: int) -> None:
        """See ``Bus.dead_letter``."""
        letter = DeadLetter(question, reason, strikes, self._now_ms())
        self._dead.set((question.rid, question.slot), letter, self._time())

    async def dead_letters(self) -> tuple[DeadLetter, ...]:
        """All dead letters, oldest first; for the operator."""
        return tuple(self._dead.values(self._time()))

    async def on_bell(self, worker_id: str, ring: Callable[[frozenset[str]], None]) -> Subscription:
        """See ``Bus.on_bell``."""
        check_worker(worker_id)
        self._time()
        return self._bells.add(lambda bell: ring(bell[1]) if bell[0] in (worker_id, "any") else None)

    async def on_cancel(self, cancel: Callable[[CancelHint], None]) -> Subscription:
        """See ``Bus.on_cancel``."""
        self._time()
        return self._cancels.add(cancel)

    async def hint_cancel(self, hint: CancelHint) -> None:
        """See ``Bus.hint_cancel``."""
        self._time()
        self._cancels.send(hint)

    async def on_catch_up(self, texts: Texts) -> Subscription:
        """See ``Bus.on_catch_up``."""
        self._time()
        return TextsListener(self._texts, texts)

    # -- context pools -------------------------------------------------------------
    async def put_pool(self, pool: ContextPool) -> bool:
        """See ``Bus.put_pool``."""
        self._time()
        check_pool(pool)
        return self._pools.put(pool, self._now_ms())

    async def pool(self, key: str) -> ContextPool | None:
        """See ``Bus.pool``."""
        self._time()
        return self._pools.get(key, self._now_ms())

    async def pool_info(self, key: str) -> PoolInfo | None:
        """See ``Bus.pool_info``."""
        pool = await self.pool(key)
        return None if pool is None else pool.info

    async def pools(self, tenant: str) -> tuple[PoolInfo, ...]:
        """See ``Bus.pools``."""
        self._time()
        return self._pools.of(tenant, self._now_ms())

    async def delete_pool(self, key: str) -> bool:
        """See ``Bus.delete_pool``."""
        self._time()
        return self._pools.delete(key, self._now_ms())

    # -- fleet ---------------------------------------------------------------------
    async def announce(self, lease: WorkerLease) -> None:
        """See ``Bus.announce``."""
        check_worker(lease.worker_id)
        self._leases.set(lease.worker_id, lease, self._time())
        if lease.state != READY:
            self._ring(ALL_BELLS)

    async def withdraw(self, worker_id: str) -> None:
        """See ``Bus.withdraw``."""
        self._time()
        self._leases.drop(worker_id)
        self._ring(ALL_BELLS)

    async def fleet(self) -> Mapping[str, WorkerLease]:
        """See ``Bus.fleet``."""
        return {lease.worker_id: lease for lease in self._leases.values(self._time())}

    async def close(self) -> None:
        """See ``Bus.close``."""
        self._closed = True
        self._bells.clear()
        self._cancels.clear()
        self._texts.clear()
        for feed in [feed for feeds in self._feeds.values() for feed in feeds]:
            feed.end()

    # -- inside --------------------------------------------------------------------
    def _time(self) -> float:
        if self._closed:
            raise BusUnavailable("the bus of this process is closed")
        return self._now()

    def _ring(self, bells: Bells) -> None:
        for bell in bells.items():
            self._bells.send(bell)

    def _feed(self, rid: str, item: Delta | Outcome) -> None:
        for feed in self._feeds.get(rid, ()):
            feed.push(item)
