"""Taking questions, never waiting for any, and answering for them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec
from nats.aio.msg import Msg

from kev.bus.checks import Bells, bells_for_return, check_source
from kev.bus.feed import BusStats
from kev.bus.messages import QueuedQuestion, decode
from kev.bus.nats.link import Link
from kev.bus.nats.replies import NoResponders, status_of
from kev.bus.nats.subjects import Names
from kev.bus.nats.topology import ensure_source
from kev.bus.settings import BusSettings
from kev.domain.errors import KevError
from kev.telemetry import traces

log = logging.getLogger(__name__)
_MARGIN = 0.05
_PAUSE_S = 0.02
_ACK, _NAK, _PROGRESS, _TERM = b"+ACK", b"-NAK", b"+WPI", b"+TERM"

Bury = Callable[[bytes, str], Awaitable[None]]
Ring = Callable[[Bells], Awaitable[None]]


class Take:
    """A worker's side of the queues.

    Args:
        bury: Keeps bytes that are no question, with the reason.
        ring: Rings bells when a question is given back.
    """

    def __init__(
        self, link: Link, names: Names, settings: BusSettings, stats: BusStats, *, bury: Bury, ring: Ring
    ) -> None:
        self._link = link
        self._names = names
        self._settings = settings
        self._stats = stats
        self._bury = bury
        self._ring = ring
        self._ready: set[str] = set()
        self._holding = Holding()

    def forget(self) -> None:
        """The queues are others now: nobody holds anything of them, and an acknowledgement would hit a stranger."""
        self._holding.ended = True
        self._holding = Holding()
        self._ready.clear()

    async def prepare(self, source: str) -> None:
        """Makes the source's durable, once."""
        if source not in self._ready:
            await ensure_source(self._link, self._names, self._settings, source)
            self._ready.add(source)

    async def take(self, source: str, most: int) -> list[NatsTaken]:
        """See ``Bus.take``.

        A caller that is cancelled meanwhile loses nothing: what arrives for it
        is given back.
        """
        check_source(source)
        taking = asyncio.ensure_future(self._take(source, most))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(_return_late)
            raise

    async def _take(self, source: str, most: int) -> list[NatsTaken]:
        """Asks again only for the places of what was no question."""
        taken: list[NatsTaken] = []
        while (wanted := most - len(taken)) > 0:
            await self.prepare(source)
            # Counted from before the request: our clock must never run behind the broker's.
            since = time.monotonic()
            try:
                bad = self._sorted(await self._next(source, wanted), since, taken)
                for message, error in bad:
                    await self._reject(message, error)
            except Exception as error:
                if not taken:
                    raise
                # Those in hand are held, whatever became of the others: these come again.
                trace = not isinstance(error, KevError)
                log.warning("%s: not all that was asked for could be taken: %s", source, error, exc_info=trace)
                break
            if not bad:
                break
        return taken

    def _sorted(self, messages: Sequence[Msg], since: float, taken: list[NatsTaken]) -> list[tuple[Msg, Exception]]:
        """Adds the questions to ``taken``; returns the other messages, and what is wrong with them."""
        bad: list[tuple[Msg, Exception]] = []
        hold_s = self._settings.ack_wait_s * (1 - _MARGIN)
        for message in messages:
            try:
                question = decode(message.data, QueuedQuestion)
            except (msgspec.MsgspecError, ValueError) as error:
                bad.append((message, error))
            else:
                taken.append(NatsTaken(self._link, self._ring, self._holding, message, question, hold_s, since))
        return bad

    async def _next(self, source: str, most: int) -> list[Msg]:
        """The next messages, at most so many; fewer when there are no more."""
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._names.queue_stream}.{self._names.durable(source)}"
        request = b'{"batch":%d,"no_wait":true}' % most
        until = time.monotonic() + self._settings.request_timeout_s
        while True:
            try:
                if most == 1:
                    replies = [await self._link.pull(subject, request)]
                else:
                    replies = await self._link.pull_some(subject, request, most)
            except NoResponders:
                # The broker forgot an unused durable, or the new one has no leader yet.
                if time.monotonic() > until:
                    raise
                self._ready.discard(source)
                await asyncio.sleep(_PAUSE_S)
                await self.prepare(source)
            else:
                return [reply for reply in replies if not status_of(reply)]

    async def _reject(self, message: Msg, error: Exception) -> None:
        """Keeps what is no question for the operator, and ends it."""
        self._stats.undecodable += 1
        log.error("undecodable question on %s: %s", message.subject, error)
        await self._bury(message.data, f"undecodable: {error}")
        await self._link.ask(message.reply, _TERM)


@dataclass(slots=True)
class Holding:
    """All questions that were taken from the same queues. ``ended``: the broker has lost these."""

    ended: bool = False


class NatsTaken:
    """A question in a worker's hands. See ``port.Taken``.

    Every reply is confirmed by the broker. Over a connection that broke, a
    holder must not believe that it still holds.
    """

    def __init__(
        self,
        link: Link,
        ring: Ring,
        holding: Holding,
        message: Msg,
        question: QueuedQuestion,
        hold_s: float,
        since: float,
    ) -> None:
        self._link = link
        self._ring = ring
        self._holding = holding
        self._reply = message.reply
        self._hold_s = hold_s
        self._until = since + hold_s
        self._answered = False
        self.question = question
        self.attempt = int(message.metadata.num_delivered)
        self.behind = int(message.metadata.num_pending)
        self.traceparent = (message.headers or {}).get(traces.HEADER, "")

    @property
    def held(self) -> bool:
        """Whether the ack wait is still running, the queue is still there, and nothing was answered yet."""
        return not self._answered and not self._holding.ended and time.monotonic() < self._until

    async def ack(self) -> None:
        """See ``Taken.ack``."""
        await self._answer(_ACK)

    async def give_back(self) -> None:
        """See ``Taken.give_back``."""
        if await self._answer(_NAK):
            await self._ring(bells_for_return(self.question))

    async def progress(self) -> None:
        """See ``Taken.progress``."""
        if self.held:
            sent = time.monotonic()
            await self._link.ask(self._reply, _PROGRESS)
            self._until = sent + self._hold_s

    async def _answer(self, word: bytes) -> bool:
        """Answers once: a second one could hit the next holder."""
        if not self.held:
            return False
        self._answered = True
        await self._link.ask(self._reply, word)
        return True


_returning: set[asyncio.Task[None]] = set()


def _return_late(taking: asyncio.Future[list[NatsTaken]]) -> None:
    """Gives back what arrived after its taker had left."""
    if taking.cancelled() or taking.exception() is not None:
        return
    for taken in taking.result():
        task = asyncio.ensure_future(_give_back(taken))
        _returning.add(task)
        task.add_done_callback(_returning.discard)


async def _give_back(taken: NatsTaken) -> None:
    try:
        await taken.give_back()
    except Exception:
        log.exception("a question comes back only after its ack wait")
