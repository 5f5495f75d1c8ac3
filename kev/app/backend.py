"""What a door (HTTP, command line) needs of Kev: the tiers in this process, or a cluster far away."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Protocol, Self

from kev.domain.context import Context
from kev.domain.question import Batch
from kev.domain.result import Frame, ResumePoint, SlotResult


class Backend(Protocol):
    """Both sides keep the same promises; all methods raise errors of ``kev.domain.errors``."""

    def ask(self, batch: Batch) -> AsyncGenerator[Frame, None]:
        """Submits, then streams. Closing the iterator cancels the slots that have not ended."""

    def stream(self, request_id: str, resume: Iterable[ResumePoint] = ()) -> AsyncGenerator[Frame, None]:
        """Follows a request to its end."""

    async def wait(self, request_id: str, wait_s: float | None) -> list[SlotResult]:
        """Results in the batch's result mode after at most ``wait_s`` (None: to the end); open slots are pending."""

    async def cancel(self, request_id: str, slots: Sequence[int] = ()) -> tuple[int, ...]:
        """Ends open slots (none named: all); returns those that this call ended."""

    async def create_context(self, name: str, text: str, ttl_ms: int | None = None) -> Context:
        """Makes a context pool, in place of the tenant's one of that name; kept ``ttl_ms``, or until it is deleted."""

    async def contexts(self) -> list[Context]:
        """The tenant's context pools by name."""

    async def delete_context(self, name: str) -> None:
        """Ends a context pool."""

    def calling(self, authorization: str) -> Self:
        """The same backend for a caller with this authorization header (empty for none).

        Raises:
            Unauthenticated: no key, or one that is not known; a cluster may say so only when it is asked.
        """

    async def healthy(self) -> bool:
        """Whether questions would be answered."""

    async def close(self) -> None:
        """Ends it."""
