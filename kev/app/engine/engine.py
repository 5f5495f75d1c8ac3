"""``kev.Engine``: the three tiers in one process, for sync and async code."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from inference_svc.loading import LoadedModel, load_model
from kev.app.engine.aio import EngineAio, submit_to
from kev.app.engine.bridge import EngineLoop
from kev.app.engine.tiers import Tiers
from kev.client import arguments, fields
from kev.client.queries import Options, Queries, batch_of
from kev.config.load import load_settings
from kev.config.settings import Settings
from kev.domain.context import Context
from kev.domain.errors import KevError
from kev.domain.result import Frame, ResumePoint, SlotResult
from kev.telemetry import traces

T = TypeVar("T")


class Engine:
    """Asks the model in this process. The same methods as ``kev.Client``.

    The tiers run in an event loop of their own thread, the model in another,
    so the caller's thread or loop stays free. All methods may be called from
    any thread. Async code uses the same methods of ``aio``.

    Use it as a context manager, or ``close`` it. It stays in the process that made it: a fork makes its own.

    Args:
        settings: See ``from_config`` for settings from a file.
        model: Loaded already; None loads what ``core`` names. A given one is closed by its giver.

    Raises:
        ConfigError: the settings do not fit one process.
        ModelUnusable: there is no model, or it cannot be served here; the text says why.
        NotServed: the model fails the self-test of the deployment's isolation level.
    """

    def __init__(self, settings: Settings | None = None, *, model: LoadedModel | None = None) -> None:
        self.settings = settings or Settings()
        traces.set_up(self.settings.trace, "engine")
        self._owned = None if model else load_model(self.settings)
        self._loop: EngineLoop | None = EngineLoop("kev-engine")
        atexit.register(self.close)
        try:
            self._tiers = self._loop.call(_started(self.settings, model or self._owned))
        except BaseException:
            self._drop()
            raise
        self.aio = EngineAio(self._ready)

    @classmethod
    def from_config(cls, path: str | Path | None = None, flags: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """An engine of a configuration.

        Args:
            path: ``kev.yaml``; None takes the defaults. Environment variables
                ``KEV_<SECTION>_<KEY>`` go on top.
            flags, more: On top of both: ``{"core.precision": "bf16"}``, or ``core_precision="bf16"``.

        Raises:
            ConfigError: names the key and what is allowed; and as ``Engine``.
        """
        return cls(load_settings(path, flags={**(flags or {}), **more}))

    def submit(
        self,
        queries: Queries,
        **options: Unpack[Options],
    ) -> str:
        """Submits a batch.

        Args:
            queries: Strings, mappings (``text`` or ``messages``, ``id``, limits) or ``Question`` objects.
            options: See ``Options``: ``isolation``, ``max_parallel``, ``max_tokens`` and so on.

        Returns:
            The request id.

        Raises:
            InvalidArgument: names the field and what is allowed.
            AlreadyUsed, Overloaded, NotServed: as the router decides.
        """
        return self._call(lambda tiers: submit_to(tiers, queries, options))

    def wait(self, request_id: str, timeout: float | None = None) -> list[SlotResult]:
        """Waits until every slot has ended; results in the batch's result mode.

        Args:
            timeout: Seconds; then open slots are ``pending``. 0 polls, None waits for the end.

        Raises:
            NotFound: no such request.
        """
        return self._call(lambda tiers: tiers.wait(request_id, timeout))

    def ask(
        self,
        queries: Queries,
        **options: Unpack[Options],
    ) -> Generator[Frame, None, None]:
        """Submits a batch and streams its answers; leaving the iterator cancels
        what is unfinished. Arguments and errors as ``submit``."""
        loop, tiers = self._ready()
        batch = batch_of(queries, **options)
        return loop.iterate(lambda: tiers.ask(batch))

    def stream(self, request_id: str, resume: Iterable[ResumePoint] = ()) -> Generator[Frame, None, None]:
        """Follows a request, from its start or from resume points. Leaving does not cancel it.

        Raises:
            NotFound: no such request.
        """
        loop, tiers = self._ready()
        points = arguments.resume_points(resume)
        return loop.iterate(lambda: tiers.stream(request_id, points))

    def cancel(self, request_id: str, slots: Sequence[int] = ()) -> tuple[int, ...]:
        """Ends open slots as cancelled, all of them if none is named; returns those that this call ended."""
        return self._call(lambda tiers: tiers.cancel(request_id, slots))

    def create_context(self, name: str, text: str, ttl_ms: int | None = None) -> Context:
        """Makes a context pool: a document that chosen questions read. See ``kev.Client.create_context``."""
        return self._call(lambda tiers: tiers.create_context(name, text, ttl_ms))

    def contexts(self) -> list[Context]:
        """The tenant's context pools by name."""
        return self._call(lambda tiers: tiers.contexts())

    def delete_context(self, name: str) -> None:
        """Ends a context pool.

        Raises:
            NotFound: there is none of that name.
        """
        self._call(lambda tiers: tiers.delete_context(name))

    def of_tenant(self, tenant: str) -> Engine:
        """The same engine for one tenant, which sees its own requests and context pools only. Close the first."""
        return _TenantEngine(self, fields.string("tenant", tenant))

    def close(self) -> None:
        """Ends the tiers and frees the model. Requests are forgotten. May be called twice."""
        loop = self._loop
        if loop is not None and not loop.forked and hasattr(self, "_tiers"):
            loop.call(self._tiers.close())
        self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, work: Callable[[Tiers], Coroutine[Any, Any, T]]) -> T:
        loop, tiers = self._ready()
        return loop.call(work(tiers))

    def _ready(self) -> tuple[EngineLoop, Tiers]:
        if self._loop is None:
            raise KevError("the engine is closed")
        return self._loop, self._tiers

    def _drop(self) -> None:
        atexit.unregister(self.close)
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()
        owned, self._owned = self._owned, None
        if owned is not None and not (loop and loop.forked):
            owned.backend.close()


class _TenantEngine(Engine):
    """An engine as one tenant sees it; it lives and ends with the engine behind it."""

    def __init__(self, engine: Engine, tenant: str) -> None:
        self.settings = engine.settings
        self._engine = engine
        self._tenant = tenant
        self.aio = EngineAio(self._ready)

    def close(self) -> None:
        """Does nothing: the engine behind it is closed by its owner."""

    def _ready(self) -> tuple[EngineLoop, Tiers]:
        loop, tiers = self._engine._ready()
        return loop, tiers.of_tenant(self._tenant)


async def _started(settings: Settings, model: LoadedModel | None) -> Tiers:
    assert model is not None
    tiers = Tiers(settings, model)
    try:
        await tiers.start()
    except BaseException:
        await tiers.close()
        raise
    return tiers
