"""``kev.v1.WorkerService`` over a ``Worker``. Errors go through the host's error table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import grpc

from inference_svc.worker import Drained, Worker
from kev.config.settings import Settings
from kev.v1 import worker_pb2 as pb
from kev.v1 import worker_pb2_grpc

NAME = "kev.v1.WorkerService"
LONGEST_GRACE_MS = 3_600_000
Context = grpc.aio.ServicerContext[Any, Any]


class WorkerServicer(worker_pb2_grpc.WorkerServiceServicer):
    """For operators.

    Args:
        model: Name of the model, for people.
        drain: Takes the worker out of service within so many seconds.
    """

    def __init__(
        self, worker: Worker, settings: Settings, model: str, drain: Callable[[float], Awaitable[Drained]]
    ) -> None:
        self._worker = worker
        self._settings = settings
        self._model = model
        self._drain = drain

    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.DescribeResponse:  # noqa: N802
        """What this worker is and how it stands."""
        worker, me = self._worker, self._worker.identity
        return pb.DescribeResponse(
            worker_id=me.worker_id,
            state=worker.state,
            channels=me.channels,
            free_channels=worker.free,
            max_parallel_queries=self._settings.router.max_parallel_queries,
            model=self._model,
            model_digest=me.model_digest,
            tokenizer_digest=me.tokenizer_digest,
            backend=me.backend,
            variant=me.variant,
            precision=self._settings.core.precision.value,
            max_context=me.max_context,
            kv_pages=worker.pages,
            kv_pages_free=worker.pages_free,
            forwards=worker.core.forwards,
            rows=worker.core.rows,
            levels=me.levels,
            self_test=worker.self_test_line,
            version=package_version(),
        )

    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.DrainResponse:  # noqa: N802
        """Stops taking, finishes or returns what runs; then the process exits."""
        drained = await self._drain(min(request.grace_ms, LONGEST_GRACE_MS) / 1000)
        return pb.DrainResponse(finished=drained.finished, returned=drained.returned)


def package_version() -> str:
    """Version of the installed distribution, empty in a bare checkout."""
    try:
        return version("kev-serving")
    except PackageNotFoundError:
        return ""
