"""The port between the tiers. Two adapters keep it: memory and NATS.

The broker holds all truth: manifests, queues, outcomes. Deltas, catch-up,
cancel hints and bells are fast paths that may be lost. Every method raises
``BusUnavailable`` when the broker does not answer, and those that store
something ``Overloaded`` when its disk is full.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from kev.bus.messages import (
    CancelHint,
    ContextPool,
    Delta,
    Lane,
    Manifest,
    Piece,
    PoolInfo,
    QueuedQuestion,
    RequestRecord,
    WorkerLease,
)
from kev.domain.errors import BusUnavailable, Overloaded
from kev.domain.outcome import Outcome

NOT_NOW = (BusUnavailable, Overloaded)
"""What a broker that does not answer, or has no room, raises: nobody's fault, and worth another try."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A router's claim on a request, while it puts the questions in.

    Two routers may have the same request at once, and one of them may refuse
    it for good while the other has put questions in: so each has a claim of
    its own, and the request is gone only when all are given up.

    Attributes:
        manifest: As stored.
        first: Whether this call wrote it.
        number: For ``drop_request``; 0 if the stored manifest is another batch's: then nothing is claimed.
    """

    manifest: Manifest
    first: bool
    number: int


class Taken(Protocol):
    """A question in a worker's hands.

    A holder whose ack wait has passed without progress holds nothing any
    more: then all three methods do nothing, because a stale reply would act
    on the new holder's message.
    """

    @property
    def question(self) -> QueuedQuestion:
        """What was taken."""

    @property
    def attempt(self) -> int:
        """How often the question was delivered, this time included (1-based)."""

    @property
    def behind(self) -> int:
        """About how many questions waited behind it in its source when it was taken; 0 if none did."""

    @property
    def traceparent(self) -> str:
        """The span in which the question was put in; empty for none."""

    @property
    def held(self) -> bool:
        """Whether the ack wait is still running."""

    async def ack(self) -> None:
        """Finishes the question. Only after its outcome is stored."""

    async def progress(self) -> None:
        """Restarts the ack wait. Only while forwards advance."""

    async def give_back(self) -> None:
        """Puts the question back at once, for any worker."""


class Subscription(Protocol):
    """A running subscription."""

    async def close(self) -> None:
        """Ends it; no callback runs afterwards."""


class Bus(Protocol):
    """Everything the tiers say to each other."""

    # -- a request's life (router) -------------------------------------------------
    async def open_request(self, manifest: Manifest) -> Claim:
        """Writes the manifest if there is none for its ``rid``, and claims the request if its digest is the same.

        The request then stands at least until this claim is dropped.
        """

    async def enqueue(self, questions: Sequence[QueuedQuestion]) -> frozenset[Lane]:
        """Puts each question into its ``lane``: all of them, or none.

        A question that is already in (same ``rid`` and slot) is not put in
        twice. Rings the bells of the workers concerned. The name of the current
        span goes along, beside the question.

        Returns:
            The full lanes that refused the set; empty when all are in.
        """

    async def put_in(self, rid: str, slots: Sequence[int]) -> frozenset[int]:
        """Those of a request's slots whose questions ``enqueue`` has put in: they wait, run or have ended."""

    async def drop_request(self, rid: str, claim: int) -> None:
        """Gives up a claim on a request that was refused for good. With the last claim manifest and outcomes go.

        Args:
            claim: Its number; 0, or one that is gone, does nothing.
        """

    async def depths(self) -> Mapping[Lane, int]:
        """Questions in the system per lane (waiting and taken). Empty lanes are left out."""

    @property
    def oldest_s(self) -> float:
        """Age of the oldest question in the system, as of the last ``depths``, seconds; 0 when there is none."""

    # -- outcomes (all tiers) ------------------------------------------------------
    async def settle(self, outcome: Outcome) -> Outcome:
        """Writes a slot's outcome if it has none: the first writer wins.

        Returns:
            The stored outcome, whoever wrote it.

        Raises:
            NotFound: the request has no live manifest.
        """

    async def outcome(self, rid: str, slot: int) -> Outcome | None:
        """The slot's outcome, read where it cannot be stale."""

    async def stands(self, rid: str) -> bool:
        """Whether there may be such a request, read where it cannot be stale; far cheaper than to read one."""

    async def request(self, rid: str) -> RequestRecord | None:
        """Manifest and outcomes of a request; None if there is no such request."""

    # -- streaming (worker to aggregator) ------------------------------------------
    async def publish_delta(self, delta: Delta) -> None:
        """Sends pieces to whoever follows the request. May be lost."""

    def follow(self, rid: str) -> AbstractAsyncContextManager[AsyncIterator[Delta | Outcome]]:
        """Deltas, and outcomes as hints, from now on. Subscribe first, then read
        the request: what was settled in between is then never missed. The
        iterator ends when the context does; hints may be lost or refused ones,
        so read ``outcome`` before believing one. A hint may also come a moment
        before its outcome can be read."""

    async def catch_up(self, rid: str) -> tuple[Piece, ...]:
        """The whole text so far of the request's running slots, from the
        workers' memory: one piece with offset 0 per slot that answers in time."""

    # -- a worker's work -----------------------------------------------------------
    async def take(self, source: str, most: int) -> Sequence[Taken]:
        """Takes up to ``most`` questions from a source, in their order, in one call. Never waits.

        Fewer come when no more were there, or when the broker went away meanwhile.

        Args:
            source: A worker id (own or orphaned: all its channel queues) or a shared lane's name; or
                ``long_queue`` of one, where its long questions wait.
        """

    async def strike(self, rid: str, slot: int) -> int:
        """Writes down one more strike against a question; returns their number."""

    async def excuse(self, rid: str, slot: int) -> None:
        """Takes one strike off a question, also one that is still to come: then their number is below 0 meanwhile."""

    async def dead_letter(self, question: QueuedQuestion, reason: str, strikes: int) -> None:
        """Keeps a question that must not run again, for the operator."""

    async def on_bell(self, worker_id: str, ring: Callable[[frozenset[str]], None]) -> Subscription:
        """Calls ``ring`` when something was queued for this worker or for any.

        It may ring a moment before ``take`` finds what was queued.

        Args:
            ring: Gets the queues, as ``take`` calls them, that got something; none where that is not known, and every
                queue may have.
        """

    async def on_cancel(self, cancel: Callable[[CancelHint], None]) -> Subscription:
        """Calls ``cancel`` for every cancel hint."""

    async def hint_cancel(self, hint: CancelHint) -> None:
        """Tells the workers that these slots were cancelled (after settling them)."""

    async def on_catch_up(self, texts: Callable[[str], Sequence[Piece]]) -> Subscription:
        """Answers ``catch_up`` for a ``rid`` with what this worker runs of it."""

    # -- context pools (router writes, workers read) --------------------------------
    async def put_pool(self, pool: ContextPool) -> bool:
        """Writes a context pool, in place of the one of its key. A reader gets the old one or the new one, whole.

        Returns:
            Whether there was one of that key.

        Raises:
            InvalidArgument: key, digest or token count are not the pool's.
        """

    async def pool(self, key: str) -> ContextPool | None:
        """The pool of that key as it stands now; None if there is none, it was deleted, or has expired."""

    async def pool_info(self, key: str) -> PoolInfo | None:
        """The same without its tokens."""

    async def pools(self, tenant: str) -> tuple[PoolInfo, ...]:
        """A tenant's pools by name, without what has expired. May be a moment behind."""

    async def delete_pool(self, key: str) -> bool:
        """Ends a pool; whether there was one."""

    # -- fleet ---------------------------------------------------------------------
    async def announce(self, lease: WorkerLease) -> None:
        """Beats: creates or renews the worker's lease (and its queues). A worker that drains rings all bells: what
        waits in its queue is for others now."""

    async def withdraw(self, worker_id: str) -> None:
        """Ends the worker's lease, and rings all bells. Its queues stay until they are empty."""

    async def fleet(self) -> Mapping[str, WorkerLease]:
        """Workers that have beaten within a lease by this process's own clock."""

    async def close(self) -> None:
        """Ends subscriptions and connection."""
