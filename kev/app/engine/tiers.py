"""Router, worker and aggregator in one event loop, over the memory bus."""

from __future__ import annotations

import asyncio
import copy
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Self

import msgspec

from aggregator_svc.aggregator import Aggregator
from inference_svc.loading import LoadedModel, worker_id_of
from inference_svc.worker import Worker
from kev.app.engine.kept import KeptWorker
from kev.bus.memory.bus import MemoryBus
from kev.bus.messages import PoolInfo
from kev.client import arguments, fields
from kev.config.keys import keyring_of
from kev.config.load import ConfigError
from kev.config.settings import Mode, Settings
from kev.domain.context import Context
from kev.domain.ids import new_request_id, rid_of
from kev.domain.question import Batch
from kev.domain.result import Frame, ResumePoint, SlotResult, Submitted
from kev.domain.tenants import ONE_TENANT
from kev.telemetry import traces
from kev.wire.bus_settings import bus_settings
from router_svc.attendance import Attendance, Left
from router_svc.router import Router


class Tiers:
    """The three tiers. Belongs to the loop that ``start`` ran in. A ``kev.app.backend.Backend``.

    Args:
        settings: Their ``deploy.mode`` must be ``single``.
        model: Stays the caller's, to be closed afterwards.

    Raises:
        ConfigError: another mode; or as ``Router``.
    """

    def __init__(self, settings: Settings, model: LoadedModel) -> None:
        mode = settings.deploy.mode
        if mode is not Mode.SINGLE:
            raise ConfigError(
                f"deploy.mode: one process serves the mode single only, got {mode}; "
                "ask a cluster with --router, or kev.Client"
            )
        keyring = keyring_of(settings.auth)
        self.bus = MemoryBus(bus_settings(settings, "engine"))
        self.router = Router(self.bus, settings, model.tokenizer)
        worker_id = worker_id_of(settings)
        self._kept = KeptWorker(
            lambda: Worker(
                self.bus, settings, model.backend, model.tokenizer, worker_id=worker_id, model_digest=model.digest
            )
        )
        self.aggregator = Aggregator(self.bus, settings)
        self.tenant = ONE_TENANT
        self._keyring = keyring
        self._attendance = Attendance()
        self._leaving: set[asyncio.Task[Submitted]] = set()

    @property
    def worker(self) -> Worker:
        """The one that serves now, or the last one that did."""
        return self._kept.worker

    async def start(self) -> None:
        """Starts all three: the worker first, so that the router finds it.

        Raises:
            NotServed: the model fails the self-test of the deployment's isolation level.
        """
        await self._kept.start()
        await self.router.start()

    async def close(self) -> None:
        """Ends all three, the door first; what runs is dropped."""
        await self.router.close()
        await self.aggregator.close()
        await self._kept.close()
        await self.bus.close()

    async def submit(self, batch: Batch) -> Submitted:
        """See ``Router.submit``."""
        return await self.router.submit(self._own(batch))

    async def ask(self, batch: Batch) -> AsyncGenerator[Frame, None]:
        """Submits, then streams; leaving cancels the slots that have not ended."""
        stands: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        span = traces.begin("ask")
        with traces.under(span):
            submitting = asyncio.create_task(self.router.submit(self._own(batch), stands=stands.set_result))
        # A request that names itself may be asked for twice; the first to leave must not end it for the other.
        rid = rid_of(self.tenant, batch.request_id or new_request_id())
        self._attendance.enter(rid, "")
        ended = False
        try:
            first: set[asyncio.Future[Submitted]] = {submitting, stands}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            submitted = stands.result() if stands.done() else submitting.result()
            traces.note(span, request_id=submitted.request_id)
            following = self.aggregator.stream(self.tenant, submitted.request_id, traceparent=traces.of(span))
            async with aclosing(following) as frames:
                async for frame in frames:
                    yield frame
            ended = True
        finally:
            traces.end(span, sys.exception())
            left = self._attendance.leave(rid, "")
            if ended or left is Left.OTHERS:
                self._let_finish(submitting)
            else:
                await asyncio.shield(asyncio.ensure_future(self._give_up(submitting, stands)))

    def stream(self, request_id: str, resume: Iterable[ResumePoint] = ()) -> AsyncGenerator[Frame, None]:
        """See ``Aggregator.stream``."""
        return self.aggregator.stream(self.tenant, arguments.request_id(request_id), arguments.resume_points(resume))

    async def wait(self, request_id: str, wait_s: float | None) -> list[SlotResult]:
        """See ``Aggregator.results``."""
        request_id, wait_s = arguments.request_id(request_id), arguments.seconds(wait_s)
        return list((await self.aggregator.results(self.tenant, request_id, wait_s)).results)

    async def cancel(self, request_id: str, slots: Sequence[int] = ()) -> tuple[int, ...]:
        """See ``Router.cancel``."""
        return await self.router.cancel(self.tenant, arguments.request_id(request_id), arguments.slots(slots))

    async def create_context(self, name: str, text: str, ttl_ms: int | None = None) -> Context:
        """See ``Contexts.create``."""
        name, text, ttl_ms = arguments.context(name, text, ttl_ms)
        info, replaced = await self.router.contexts.create(self.tenant, name, text, ttl_ms)
        return _context(info, replaced)

    async def contexts(self) -> list[Context]:
        """See ``Contexts.list``."""
        return [_context(info) for info in await self.router.contexts.list(self.tenant)]

    async def delete_context(self, name: str) -> None:
        """See ``Contexts.delete``."""
        await self.router.contexts.delete(self.tenant, fields.string("name", name))

    def calling(self, authorization: str) -> Self:
        """See ``Backend.calling``."""
        return self.of_tenant(self._keyring.tenant(authorization))

    def of_tenant(self, tenant: str) -> Self:
        """The same tiers for one tenant: its requests and context pools only."""
        view = copy.copy(self)
        view.tenant = fields.string("tenant", tenant)
        return view

    async def healthy(self) -> bool:
        """Whether the worker serves, the model advances, and the router has a channel to send to."""
        return self._kept.healthy and self.router.ready

    def _own(self, batch: Batch) -> Batch:
        return msgspec.structs.replace(batch, tenant=self.tenant)

    def _let_finish(self, submitting: asyncio.Task[Submitted]) -> None:
        """The loop itself holds tasks only weakly."""
        self._leaving.add(submitting)
        submitting.add_done_callback(self._leaving.discard)
        submitting.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _give_up(self, submitting: asyncio.Task[Submitted], stands: asyncio.Future[Submitted]) -> None:
        """Ends the submit, and the open slots if it had come to stand. A submit that
        never stood may have named somebody else's request: that one is not touched."""
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)
        if stands.done() and not stands.cancelled():
            await self.cancel(stands.result().request_id)


def _context(info: PoolInfo, replaced: bool = False) -> Context:
    return Context(info.name, info.tokens, info.digest, info.created_ms, info.expires_ms, replaced)
