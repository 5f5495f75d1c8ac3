"""The order of things in the router: a batch comes in, every question of it ends up somewhere.

Works over any bus; ``service`` puts it on gRPC, an engine in one process calls it directly.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

from kev.bus.messages import Manifest, QueuedQuestion, RequestRecord
from kev.bus.port import Bus, Claim
from kev.config.settings import OverflowPolicy, Settings
from kev.domain.errors import AlreadyUsed, Overloaded
from kev.domain.ids import new_request_id, rid_of
from kev.domain.outcome import Status
from kev.domain.question import Batch, Priority
from kev.domain.result import Submitted
from kev.telemetry import traces
from kev.tokens.tokenizer import Tokenizer
from router_svc import metrics, records
from router_svc.admission import Refusal, check_batch, digest_of
from router_svc.assign import Assigner
from router_svc.breaker import BreakerLimits
from router_svc.contexts import Contexts
from router_svc.lanes import Lanes
from router_svc.placing import Filling, Placer
from router_svc.prepare import Preparer, Ready, limits_of
from router_svc.settling import Settling
from router_svc.strategies import Bucketing, Strategies
from router_svc.tasks import ended, to_the_end
from router_svc.telling import submitting
from router_svc.watch import Watch

OVERLOADED = "overloaded"


def wall_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class _Request:
    """One submit on its way.

    Attributes:
        claim: Holds the request while this submit works on it; None if nothing of it can run any more.
        refusals: Slots to be settled as refused.
        refused: Slots whose outcome is a refusal.
        stands: Told once that the request can be followed.
    """

    manifest: Manifest
    claim: Claim | None
    filling: Filling
    refusals: dict[int, Refusal]
    refused: set[int]
    stands: Callable[[Submitted], None] | None

    def submitted(self) -> Submitted:
        """The reply."""
        slots = tuple(sorted(self.refused | set(self.refusals)))
        return Submitted(
            self.manifest.request_id, len(self.manifest.slots), slots, duplicate=not (self.claim and self.claim.first)
        )

    def tell(self) -> None:
        """Says, once, that the request stands."""
        stands, self.stands = self.stands, None
        if stands is not None:
            stands(self.submitted())


class Router:
    """Takes batches. Call it from one event loop; ``start`` first, ``close`` at the end.

    Args:
        tokenizer: The one of the workers' model; workers with another are never sent a question.
        clock: Unix milliseconds.
        rng: For ``spill_least`` and where rotations start.
        poll_s, hurry_s: Seconds between two looks at fleet and depths; the second while somebody waits for room.

    Raises:
        ConfigError: the model's chat template cannot be used, the strategy lacks a file, or the system prompt
            fills the context.
    """

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        tokenizer: Tokenizer,
        *,
        clock: Callable[[], int] = wall_ms,
        rng: random.Random | None = None,
        poll_s: float = 0.25,
        hurry_s: float = 0.05,
    ) -> None:
        self._bus, self._settings, self._tokenizer, self._clock = bus, settings, tokenizer, clock
        route = settings.router
        metrics.configure(route.hash_buckets, settings.bus.queue_bound, settings.aggregator.timeout_ms / 1000)
        self._limits = limits_of(settings, tokenizer)
        self._strategies = Strategies(route)
        self._preparer = Preparer(settings, tokenizer, self._limits, self._strategies.of(None))
        self.contexts = Contexts(bus, settings, self._preparer, tokenizer.digest, clock)
        chance = rng or random.Random()
        self._assigner = Lanes(lambda long: _assigner(settings, chance, long), split=route.long_channels > 0)
        self._watch = Watch(
            bus,
            self._assigner,
            tokenizer_digest=tokenizer.digest,
            max_context=settings.core.max_context,
            poll_s=poll_s,
            hurry_s=hurry_s,
            changed=lambda: self._placer.wake(),
            hurry=lambda: self._placer.waiters > 0,
        )
        self._placer = Placer(bus, self._assigner, self._watch, route.max_waiters, clock)
        self._settling = Settling(bus, clock)
        self._alone: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._polling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Looks at the fleet once, then goes on doing so.

        Raises:
            BusUnavailable: the broker does not answer.
        """
        await self._watch.poll()
        self._polling = asyncio.create_task(self._watch.run(), name="router-watch")

    async def close(self) -> None:
        """Stops polling and the preparing threads. The bus stays open: it is the caller's."""
        if self._polling is not None:
            await ended(self._polling)
        self._preparer.close()

    @property
    def bus_up(self) -> bool:
        """Whether the broker answered the last poll."""
        return self._watch.bus_up

    @property
    def ready(self) -> bool:
        """Whether there is a channel to send to."""
        return len(self._assigner.ring) > 0

    @property
    def waiters(self) -> int:
        """Submits that wait for room."""
        return self._placer.waiters

    async def submit(
        self,
        batch: Batch,
        *,
        latest_ms: int | None = None,
        stands: Callable[[Submitted], None] | None = None,
    ) -> Submitted:
        """Takes a batch whole or refuses it whole; bad questions become refused slots.

        The same id with the same batch again puts in what is missing and
        returns the same request; so a client repairs a router that died.

        Args:
            latest_ms: No slot's deadline is later (Unix milliseconds).
            stands: Called once when the request can be followed, which under ``wait`` may be long before
                this method returns.

        Raises:
            InvalidArgument, NotServed: a mistake in the batch.
            AlreadyUsed: the id names another batch.
            Overloaded: no room, or too many wait already; nothing was kept.
            BusUnavailable: the broker does not answer; submit again with the same id.
        """
        accepted_ms = self._clock()
        with metrics.counted_submit() as counted, submitting() as told:
            check_batch(batch, self._limits)
            bucketing = await asyncio.to_thread(self._strategies.of, batch.strategy)
            request_id = batch.request_id or new_request_id()
            told.named(request_id)
            rid = rid_of(batch.tenant, request_id)
            async with self._one_at_a_time(rid):
                digest = await asyncio.to_thread(digest_of, batch)
                wanted = records.manifest_of(
                    batch,
                    self._settings,
                    rid=rid,
                    request_id=request_id,
                    digest=digest,
                    accepted_ms=accepted_ms,
                    latest_ms=latest_ms,
                )
                request = await self._open(batch, wanted, bucketing, latest_ms, stands)
                with traces.span("router place"):
                    await self._fill(request)
            counted(request.submitted())
            told.taken(request.submitted())
            return request.submitted()

    async def cancel(
        self, tenant: str, request_id: str, slots: Sequence[int] = (), *, with_text: bool = True
    ) -> tuple[int, ...]:
        """Ends open slots of a request as cancelled.

        Args:
            slots: Which; empty for all.
            with_text: Ask the workers for the text so far, to keep it in the outcome; without, it is faster.

        Returns:
            The slots that this call ended, ascending.

        Raises:
            NotFound: no such request.
            InvalidArgument: it has no such slot.
            BusUnavailable: the broker does not answer.
        """
        gone = await self._settling.cancel(rid_of(tenant, request_id), request_id, slots, with_text)
        metrics.CANCELLED.inc(len(gone))
        return gone

    # -- the steps of a submit -----------------------------------------------------
    async def _open(
        self,
        batch: Batch,
        wanted: Manifest,
        bucketing: Bucketing,
        latest_ms: int | None,
        stands: Callable[[Submitted], None] | None,
    ) -> _Request:
        """Prepares the questions and writes the manifest, unless the request is there already."""
        record = await self._bus.request(wanted.rid) if batch.request_id else None
        if record is None:
            self._check_room(batch)
        else:
            _check_same(record.manifest, wanted)
        prepared = await self._prepared(
            batch, bucketing, record.open_slots() if record else range(len(batch.questions))
        )
        claim: Claim | None = None
        if record is None or _may_run(record, self._clock()):
            claim = await self._bus.open_request(records.accepted(wanted, self._clock(), latest_ms, traces.current()))
            _check_same(claim.manifest, wanted)
            record = None if claim.first else await self._bus.request(wanted.rid)
            record = record or RequestRecord(claim.manifest, {})
            # What had an outcome when this began may have none now: the request was given up and is opened anew.
            missing = [slot for slot in record.open_slots() if slot not in prepared]
            prepared |= await self._prepared(batch, bucketing, missing)
        return self._sorted(batch, record, claim, prepared, stands)

    async def _prepared(self, batch: Batch, bucketing: Bucketing, slots: Sequence[int]) -> dict[int, Ready | Refusal]:
        if not slots:
            return {}
        with metrics.PREPARE.time(), traces.span("router prepare", slots=len(slots)):
            questions = [batch.questions[slot] for slot in slots]
            around = await self.contexts.around(batch.tenant, batch.prefix, questions)
            ready = await self._preparer.prepare_all(questions, bucketing, around)
        return dict(zip(slots, ready, strict=True))

    def _sorted(
        self,
        batch: Batch,
        record: RequestRecord,
        claim: Claim | None,
        prepared: Mapping[int, Ready | Refusal],
        stands: Callable[[Submitted], None] | None,
    ) -> _Request:
        """The open slots: those to be refused, and those to be queued."""
        most = self._settings.router.max_parallel_queries
        parallel, digest = min(batch.max_parallel or most, most), self._tokenizer.digest
        refusals: dict[int, Refusal] = {}
        waiting: list[tuple[QueuedQuestion, Priority]] = []
        for slot, item in prepared.items():
            if slot in record.outcomes:
                continue
            if isinstance(item, Refusal):
                refusals[slot] = item
                continue
            question = batch.questions[slot]
            queued = records.queued(
                record.manifest,
                question,
                item,
                slot=slot,
                max_parallel=parallel,
                tokenizer_digest=digest,
                strategy=self._strategies.name(batch.strategy),
            )
            waiting.append((queued, question.priority))
        refused = {slot for slot, outcome in record.outcomes.items() if outcome.status is Status.REFUSED}
        return _Request(record.manifest, claim, Filling(waiting), refusals, refused, stands)

    async def _fill(self, request: _Request) -> None:
        """Into the queues, then the refused slots. What is refused for good leaves nothing behind."""
        filling = request.filling
        filling.drop_expired(self._clock())
        try:
            if not await self._placer.at_once(filling):
                await self._overflow(request)
        except Overloaded:
            if request.claim is not None and not filling.placed:
                await to_the_end(self._bus.drop_request(request.manifest.rid, request.claim.number))
            raise
        finally:
            if filling.placed:
                request.tell()  # also to a caller who leaves now: there is something to cancel
        await to_the_end(self._looked(request))

    async def _overflow(self, request: _Request) -> None:
        if self._settings.router.overflow_policy is not OverflowPolicy.WAIT:
            long = sum(question.lane.long for question, _ in request.filling.left)
            raise self._overloaded(len(request.filling.left) - long, long)
        await self._placer.patiently(request.filling, lambda: to_the_end(self._looked(request)))

    async def _looked(self, request: _Request) -> None:
        """From here on the request stands: readers may come, and refused slots get their outcomes."""
        late = Refusal(OVERLOADED, "no channel had room before the question's deadline")
        for question in request.filling.late:
            request.refusals[question.slot] = late
        request.filling.late.clear()
        request.tell()
        refusals, request.refusals = request.refusals, {}
        now_ms = self._clock()
        outcomes = [records.refused(request.manifest, slot, why, now_ms=now_ms) for slot, why in refusals.items()]
        expired, request.filling.expired = request.filling.expired, []
        outcomes += [records.timed_out(request.manifest, question.slot, now_ms=now_ms) for question in expired]
        for stored in await self._settling.settle(outcomes):
            if stored.status is Status.REFUSED:
                request.refused.add(stored.slot)
                metrics.REFUSED.labels(stored.reason).inc()

    # -- small parts ---------------------------------------------------------------
    @asynccontextmanager
    async def _one_at_a_time(self, rid: str) -> AsyncIterator[None]:
        """Two submits of one request in this process follow each other."""
        lock = self._alone.get(rid)
        if lock is None:
            lock = self._alone[rid] = asyncio.Lock()
        async with lock:
            yield

    def _check_room(self, batch: Batch) -> None:
        """Refuses a new request that could not go in anyway, before any work is done for it."""
        bands = {question.priority for question in batch.questions}
        if self._settings.router.overflow_policy is OverflowPolicy.WAIT:
            self._placer.check(bands)
        elif not self._assigner.any_room() and bands == {Priority.NORMAL}:
            raise self._overloaded(len(batch.questions), 0)

    def _overloaded(self, short: int, long: int) -> Overloaded:
        if not self._assigner.ring:
            return Overloaded("no worker is ready", self._settings.bus.lease_ms)
        delay = self._watch.rate.retry_after_ms(self._assigner.missing(short, long))
        return Overloaded(f"no room for {short + long} more questions", delay)


def _assigner(settings: Settings, rng: random.Random, long: bool) -> Assigner:
    route = settings.router
    return Assigner(
        load_factor=route.load_factor,
        queue_bound=settings.bus.queue_bound,
        shared_bound=settings.bus.shared_lane_bound,
        virtual_nodes=route.virtual_nodes,
        rng=rng,
        breaker=BreakerLimits(route.breaker_depth, route.breaker_factor, route.breaker_open_ms / 1000),
        overflow=route.overflow_policy is OverflowPolicy.QUEUE,
        long=long,
    )


def _may_run(record: RequestRecord, now_ms: int) -> bool:
    """Whether an open slot has time left."""
    return any(record.manifest.slots[slot].deadline_ms > now_ms for slot in record.open_slots())


def _check_same(stored: Manifest, wanted: Manifest) -> None:
    if stored.digest != wanted.digest:
        raise AlreadyUsed(f"request {wanted.request_id}: this id names a different batch")
