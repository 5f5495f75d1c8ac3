"""A worker: takes questions from the bus, runs them in channels, writes outcomes.

One question's way here: ``Intake`` takes it, ``Gate`` checks it, ``Core`` runs
it, ``Serving`` streams its text, writes its outcome and then acknowledges.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import NamedTuple

from inference_svc.arrivals import Arrivals
from inference_svc.assembly import core_of, identity_of, levels_of
from inference_svc.audit.log import AuditLog
from inference_svc.backends.port import Backend
from inference_svc.beats import Beats
from inference_svc.clock import Clock
from inference_svc.gate import Gate
from inference_svc.grammars.compiler import Grammars
from inference_svc.intake import Intake
from inference_svc.metrics import WorkerMetrics
from inference_svc.outcomes import Now
from inference_svc.pages import IntegrityError
from inference_svc.report import Report
from inference_svc.self_test import SelfTestFailed, tested
from inference_svc.serving import Serving
from kev.bus.messages import READY, WorkerLease
from kev.bus.port import NOT_NOW, Bus, Subscription
from kev.config.settings import Settings
from kev.domain.errors import BusUnavailable, NotServed
from kev.domain.question import Isolation
from kev.tokens.tokenizer import Tokenizer

log = logging.getLogger(__name__)
TICKS_PER_ACK_WAIT = 4
GIVE_BACK_S = 3.0
STOP_S = 10.0


class WorkerFailed(RuntimeError):
    """The model thread ended on an error; the worker cannot go on."""


class Drained(NamedTuple):
    """What became of the questions in hand when a drain began."""

    finished: int
    returned: int


class Worker:
    """One worker: ``start`` it, keep ``run`` as a task; ``drain`` ends ``run``; ``close`` ends the thread.

    The backend stays the caller's, to be closed after the worker.

    Args:
        worker_id: Stable over restarts; names the worker's queues.
        model_digest: Part of the lease and of every audit record.
        self_test: Raises ``SelfTestFailed`` if packed does not equal alone; else returns a line that says what
            was compared. None skips it, and vouches for the backend.
    """

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        backend: Backend,
        tokenizer: Tokenizer,
        *,
        worker_id: str,
        model_digest: str = "",
        self_test: Callable[[Backend], str] | None = tested,
        clock: Clock | None = None,
        metrics: WorkerMetrics | None = None,
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._backend = backend
        self._clock = clock or Clock()
        self._self_test = self_test
        self._metrics = metrics or WorkerMetrics(
            settings.router.channel_pool_size, backend.pages, buckets=settings.router.hash_buckets
        )
        self._grammars = Grammars(tokenizer, settings.core.grammar_ms / 1000)
        self._subscriptions: list[Subscription] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = asyncio.Event()
        self._draining: asyncio.Task[Drained] | None = None
        self._beats = Beats(bus, settings.bus.lease_ms / 1000, self._lease, lambda: self.healthy)
        self.identity = identity_of(settings, backend, tokenizer, worker_id, model_digest)
        self._audit = AuditLog(settings.inference, self.identity, self._metrics.audited, self._clock.wall_ms)
        self.core = core_of(settings, backend, tokenizer, self._clock, self._from_core, self._audit.around)
        self.state = "starting"
        self.self_test_line = "not run"
        self.pages_free = backend.pages
        self.serving: Serving
        self._intake: Intake

    # -- life ------------------------------------------------------------------------
    async def start(self, address: str = "") -> None:
        """Starts the core, tests the model, joins the fleet.

        Args:
            address: Of this worker's gRPC service, for the lease.

        Raises:
            NotServed: the self-test failed and no weaker level is allowed.
            BusUnavailable, Overloaded: the broker does not answer, or has no room.
        """
        self._loop = asyncio.get_running_loop()
        self.core.start()
        passed = await self._test()
        self._metrics.self_test(passed)
        levels = levels_of(self._settings, strict=passed)
        if not levels:
            raise NotServed(f"isolation.level strict is not served: {self.self_test_line}")
        self.identity = dataclasses.replace(self.identity, levels=levels, address=address)
        self._assemble()
        self.state = READY
        await self._beats.announce()
        self._subscriptions = [
            await self._bus.on_bell(self.identity.worker_id, self._intake.ring),
            await self._bus.on_cancel(self.serving.cancel),
            await self._bus.on_catch_up(self.serving.texts),
        ]

    async def run(self) -> None:
        """Serves until drained or closed.

        Raises:
            WorkerFailed: the model thread ended; what was in hand goes to others.
        """
        loops = [self._beats.run(), self._every_tick(), self._intake.run(), self.serving.tell()]
        tasks = [asyncio.ensure_future(loop) for loop in loops]
        ended = asyncio.ensure_future(self._closed.wait())
        intake = tasks[2]
        try:
            while not ended.done():
                waiting = [task for task in (*tasks, ended) if not (task is intake and task.done())]
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in (*tasks, ended):
                task.cancel()
            await asyncio.gather(*tasks, ended, return_exceptions=True)
        if self.core.broken is not None:
            raise WorkerFailed(f"the model thread ended: {self.core.broken}") from self.core.broken

    async def drain(self, grace_s: float) -> Drained:
        """Takes nothing more, finishes what runs within ``grace_s``, gives back the rest, leaves the fleet.

        A second call waits for the first one's end.
        """
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain(grace_s))
        return await asyncio.shield(self._draining)

    async def _drain(self, grace_s: float) -> Drained:
        self.state = "draining"
        before = self.serving.finished, self.serving.returned
        await self._beats.beat()
        await self._intake.stop()
        if not await self.serving.empty(grace_s):
            self.serving.give_back_all()
            if not await self.serving.empty(GIVE_BACK_S):
                await self.serving.give_back_now()
        try:
            await self._bus.withdraw(self.identity.worker_id)
        except NOT_NOW:
            log.warning("the lease could not be withdrawn; it lapses by itself")
        self._closed.set()
        return Drained(self.serving.finished - before[0], self.serving.returned - before[1])

    async def close(self) -> None:
        """Ends subscriptions, tasks and the model thread; what is in hand goes to others after its ack wait."""
        self.state = "closed"
        self._closed.set()
        for subscription in self._subscriptions:
            try:
                await subscription.close()
            except BusUnavailable:
                log.debug("a subscription could not be ended: the broker does not answer")
        self._subscriptions = []
        if hasattr(self, "serving"):
            await self.serving.close()
        self._grammars.close()
        if not await self._core_ended():
            log.error("the model thread hangs in a forward and is left behind")
        self._audit.end()
        if not await self._ended(lambda: self._audit.alive):
            log.error("the audit log cannot be written to its end")

    async def _core_ended(self) -> bool:
        self.core.end()
        return await self._ended(lambda: self.core.alive)

    async def _ended(self, alive: Callable[[], bool]) -> bool:
        """Looks again and again: a thread to wait in cannot be had any more when the interpreter ends."""
        until = self._clock.monotonic() + STOP_S
        while alive() and self._clock.monotonic() < until:  # noqa: ASYNC110 - a thread's end has no event
            await asyncio.sleep(0.005)
        return not alive()

    @property
    def free(self) -> int:
        """Free channels."""
        return self.serving.free if self.state != "starting" else self.identity.channels

    @property
    def pages(self) -> int:
        """KV pages."""
        return self._backend.pages

    @property
    def healthy(self) -> bool:
        """Whether the model advances: no forward takes longer than the ack wait."""
        since = self.core.busy_since
        stuck = since is not None and self._clock.monotonic() - since > self._settings.bus.ack_wait_ms / 1000
        return not stuck and self.core.broken is None

    # -- inside ----------------------------------------------------------------------
    def _assemble(self) -> None:
        gate = Gate(self._bus, self.identity, self._now)
        arrivals = Arrivals(self.core.expect)
        self._intake = Intake(
            self._bus,
            self.identity.worker_id,
            room=lambda long: self.serving.room(long) if self.healthy else 0,
            accept=lambda taken, source: self.serving.accept(taken, source),
            arrivals=arrivals,
            clock=self._clock,
            lease_s=self._settings.bus.lease_ms / 1000,
            lanes=self.identity.long_channels > 0,
        )
        self.serving = Serving(
            self._bus,
            self.core,
            gate,
            self.identity,
            self._now,
            self._metrics,
            self._grammars,
            arrivals,
            freed=self._intake.channel_freed,
            pause=self._intake.pause,
            strict=self._settings.isolation.level is Isolation.STRICT,
        )

    async def _test(self) -> bool:
        """The self-test, on the model thread."""
        test = self._self_test
        if test is None:
            return True
        try:
            self.self_test_line = await asyncio.wrap_future(self.core.call(lambda: test(self._backend)))
        except SelfTestFailed as error:
            self.self_test_line = f"failed: {error}"
            log.error("self-test failed: %s", error)
            return False
        log.info("self-test %s", self.self_test_line)
        return True

    def _from_core(self, report: Report) -> None:
        """On the model thread: carries a report over to the event loop."""
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._receive, report)
        except RuntimeError:
            log.debug("a report came after the event loop had ended")

    def _receive(self, report: Report) -> None:
        if self.core.broken is not None:
            if isinstance(self.core.broken, IntegrityError):
                self._metrics.checked("failed")
            self._closed.set()
        elif self.state != "closed":
            self.pages_free = report.pages_free
            self.serving.receive(report)

    def _now(self) -> Now:
        return Now(self._clock.monotonic(), self._clock.wall_ms())

    def _lease(self, beat: int) -> WorkerLease:
        me = self.identity
        return WorkerLease(
            worker_id=me.worker_id,
            channels=me.channels,
            long_channels=me.long_channels,
            free=self.serving.free,
            state=self.state,
            model_digest=me.model_digest,
            tokenizer_digest=me.tokenizer_digest,
            max_context=me.max_context,
            backend=me.backend,
            variant=me.variant,
            levels=me.levels,
            address=me.address,
            beat=beat,
        )

    async def _every_tick(self) -> None:
        while True:
            await asyncio.sleep(self._settings.bus.ack_wait_ms / 1000 / TICKS_PER_ACK_WAIT)
            await self.serving.keep_alive()
