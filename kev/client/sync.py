"""The synchronous client: ``AsyncClient`` on a loop of its own."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Self, Unpack

from kev.client.aio import AsyncClient
from kev.client.loop_thread import LoopThread
from kev.client.queries import Options, Queries
from kev.domain.context import Context
from kev.domain.result import Frame, ResumePoint, SlotResult


class Client:
    """Asks a running cluster, over gRPC. May be used from several threads.

    ::

        with Client("127.0.0.1:50051") as client:
            request_id = client.submit(["What is 2 + 2?", "Name a river."])
            for result in client.wait(request_id):
                print(result.slot, result.text)

    Arguments, results and errors of all methods are those of ``AsyncClient``.
    """

    def __init__(
        self,
        address: str,
        *,
        aggregator: str | None = None,
        retries: int = 0,
        api_key: str | None = None,
        ca: str | None = None,
    ) -> None:
        self._client = AsyncClient(address, aggregator=aggregator, retries=retries, api_key=api_key, ca=ca)
        self._loop = LoopThread("kev-client")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections, and what still runs over them."""
        if not self._loop.closed and not self._loop.forked:
            self._loop.call(self._client.close())
            self._loop.close()

    def submit(
        self,
        queries: Queries,
        **options: Unpack[Options],
    ) -> str:
        """Submits a batch; returns its request id."""
        return self._loop.call(self._client.submit(queries, **options))

    def wait(self, request_id: str, timeout: float | None = None) -> list[SlotResult]:
        """Waits until every slot has ended, or ``timeout`` seconds are over."""
        return self._loop.call(self._client.wait(request_id, timeout))

    def ask(
        self,
        queries: Queries,
        **options: Unpack[Options],
    ) -> Generator[Frame, None, None]:
        """Submits a batch and streams its answers; leaving the iterator cancels what is unfinished."""
        return self._loop.iterate(lambda: self._client.ask(queries, **options))

    def stream(self, request_id: str, resume: Iterable[ResumePoint] = ()) -> Generator[Frame, None, None]:
        """Follows a request; a lost connection is resumed."""
        return self._loop.iterate(lambda: self._client.stream(request_id, resume))

    def cancel(self, request_id: str, slots: Sequence[int] = ()) -> tuple[int, ...]:
        """Ends open slots as cancelled; returns those that this call ended."""
        return self._loop.call(self._client.cancel(request_id, slots))

    def create_context(self, name: str, text: str, ttl_ms: int | None = None) -> Context:
        """Makes a context pool: a document that chosen questions read."""
        return self._loop.call(self._client.create_context(name, text, ttl_ms))

    def contexts(self) -> list[Context]:
        """The tenant's context pools by name."""
        return self._loop.call(self._client.contexts())

    def delete_context(self, name: str) -> None:
        """Ends a context pool: no new question may read it."""
        self._loop.call(self._client.delete_context(name))
