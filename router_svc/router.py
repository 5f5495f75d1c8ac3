"""The order of things in the router: a batch comes in, every question of it ends up somewhere.

Works over any bus; ``service`` puts it on gRPC, an engine in one process calls it directly.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from kev.bus.port import Bus
from kev.config.settings import OverflowPolicy, Settings
from kev.domain.ids import new_request_id, rid_of
from kev.domain.question import Batch, Strategy
from kev.domain.result import Submitted
from kev.telemetry import traces
from kev.tokens.tokenizer import Tokenizer
from router_svc import metrics
from router_svc.admission import check_batch
from router_svc.assign import Assigner
from router_svc.breaker import BreakerLimits
from router_svc.contexts import Contexts
from router_svc.lanes import Lanes
from router_svc.opening import Opening
from router_svc.placing import Placer
from router_svc.prepare import Preparer, limits_of
from router_svc.request import Stands
from router_svc.room import Room
from router_svc.settling import Settling
from router_svc.strategies import Bucketing, Strategies
from router_svc.tasks import ended
from router_svc.telling import submitting
from router_svc.watch import Watch


def wall_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


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
        self._room = Room(bus, settings, self._assigner, self._watch, self._placer, self._settling, clock)
        self._opening = Opening(
            bus,
            settings,
            self._preparer,
            self.contexts,
            tokenizer_digest=tokenizer.digest,
            check_room=self._room.check,
            clock=clock,
        )
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
        stands: Stands | None = None,
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
        with metrics.counted_submit() as counted, submitting() as told:
            check_batch(batch, self._limits)
            bucketing = await self._bucketing(batch.strategy)
            request_id = batch.request_id or new_request_id()
            told.named(request_id)
            async with self._one_at_a_time(rid_of(batch.tenant, request_id)):
                request = await self._opening.open(batch, request_id, bucketing, latest_ms, stands)
                with traces.span("router place"):
                    await self._room.fill(request)
            submitted = request.submitted()
            counted(submitted)
            told.taken(submitted)
            return submitted

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

    async def _bucketing(self, asked: Strategy | None) -> Bucketing:
        """What a batch asks for; in a thread where files have to be read."""
        made = self._strategies.made(asked)
        return made if made is not None else await asyncio.to_thread(self._strategies.of, asked)

    @asynccontextmanager
    async def _one_at_a_time(self, rid: str) -> AsyncIterator[None]:
        """Two submits of one request in this process follow each other."""
        lock = self._alone.get(rid)
        if lock is None:
            lock = self._alone[rid] = asyncio.Lock()
        async with lock:
            yield


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
