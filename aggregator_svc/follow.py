"""Follows one request for all its readers on this replica."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from aggregator_svc import metrics
from aggregator_svc.assemble import RequestText
from aggregator_svc.deadlines import next_due_ms, overdue
from aggregator_svc.fanout import Reader
from aggregator_svc.hints import Hints
from aggregator_svc.timing import Timing
from kev.bus.messages import Delta
from kev.bus.port import Bus
from kev.domain.errors import BusUnavailable, NotFound, Overloaded
from kev.domain.outcome import Outcome

log = logging.getLogger(__name__)

REREAD_S = 1.0
"""Open slots are read again this often, because hints may be lost."""
CATCH_UP_PAUSE_S = 0.25
"""Shortest time between two questions to the workers for a request's text."""
LATE_MS = 500
"""A request older than this has probably streamed already when it is first followed."""
FEW_SLOTS = 8
"""Up to so many outcomes are read one by one, more of them with the whole request."""
BUS_PATIENCE_S = 30.0
"""How long the broker may be silent, or full, before readers are told."""

Clock = Callable[[], int]


class Follower:
    """One request, followed by one task: hears deltas, reads outcomes, tells readers.

    Args:
        request_id: As the caller wrote it, for error texts.
        clock: Unix milliseconds.
    """

    def __init__(self, bus: Bus, rid: str, request_id: str, clock: Clock) -> None:
        self._bus, self._rid, self._request_id, self._clock = bus, rid, request_id, clock
        self._readers: set[Reader] = set()
        self._hints = Hints()
        self._wake = asyncio.Event()
        self._text_wanted = asyncio.Event()
        self._read_at = 0.0
        self._full_since: float | None = None
        self._refused_at = 0.0
        self._text: RequestText | None = None
        self.users = 0
        self.task: asyncio.Task[None]
        self.opened = asyncio.Event()
        self.finished = asyncio.Event()
        self.error: Exception | None = None

    @property
    def text(self) -> RequestText:
        """What was heard of the request; there is some once ``opened`` is set.

        Raises:
            KevError: the request cannot be followed.
        """
        if self._text is None:
            raise self.error or AssertionError("not opened yet")
        return self._text

    def add(self, reader: Reader, *, resumed: bool) -> None:
        """A reader joins. One that resumes is ahead of what a new follower has heard."""
        self._readers.add(reader)
        if resumed and not self.text.complete:
            self._text_wanted.set()
        if self.error is not None:
            reader.fail(self.error)

    def remove(self, reader: Reader) -> None:
        """A reader leaves."""
        self._readers.discard(reader)

    async def run(self) -> None:
        """Follows until every slot has its outcome. Errors go to ``error`` and to the readers."""
        try:
            async with self._bus.follow(self._rid) as hints:  # subscribe first, then read
                await self._read_all()
                self._open()
                helpers = [asyncio.create_task(self._listen(hints)), asyncio.create_task(self._catch_up())]
                try:
                    await self._keep_up()
                finally:
                    for helper in helpers:
                        helper.cancel()
                    await asyncio.gather(*helpers, return_exceptions=True)
        except Exception as error:  # the readers' own calls end with it
            self.stop(error)
        finally:
            self.opened.set()
            self.finished.set()

    def stop(self, error: Exception) -> None:
        """Ends all readers with an error."""
        self.error = self.error or error
        for reader in self._readers:
            reader.fail(error)
        self.opened.set()
        self.finished.set()

    def _open(self) -> None:
        late = self._clock() - self.text.manifest.created_ms > LATE_MS
        self._timing = Timing(asyncio.get_running_loop().time(), fresh=not late)
        if late and not self.text.complete:
            self._text_wanted.set()
        self.opened.set()

    # -- hints ---------------------------------------------------------------------
    async def _listen(self, hints: AsyncIterator[Delta | Outcome]) -> None:
        async for hint in hints:
            try:
                self._hint(hint)
            except Exception:
                log.exception("a hint could not be used")

    def _hint(self, hint: Delta | Outcome) -> None:
        if isinstance(hint, Outcome):
            self._hints.heard(hint.slot)  # may be a write that the broker refused: read before believing
            self._wake.set()
            return
        news = self.text.hear(hint.pieces)
        metrics.observe_texts(*self._timing.heard(news, asyncio.get_running_loop().time()))
        self._tell(news)
        if self.text.has_gap:
            self._text_wanted.set()

    async def _catch_up(self) -> None:
        while True:
            await self._text_wanted.wait()
            self._text_wanted.clear()
            metrics.CATCH_UPS.inc()
            try:
                self._tell(self.text.hear(await self._bus.catch_up(self._rid)))
            except BusUnavailable:
                metrics.READ_ERRORS.inc()
            except Exception:
                log.exception("the text so far could not be used")
            await asyncio.sleep(CATCH_UP_PAUSE_S)

    # -- outcomes ------------------------------------------------------------------
    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        answered_at = loop.time()
        while not self.text.complete:
            try:
                await self._settle_overdue()
                await self._wait()
                await self._read()
                answered_at = loop.time()
            except BusUnavailable:
                metrics.READ_ERRORS.inc()
                if loop.time() - answered_at > BUS_PATIENCE_S:
                    raise
                await asyncio.sleep(REREAD_S)

    async def _wait(self) -> None:
        """Until a hint, the next look at an old one, the next re-read or the next overdue slot."""
        if self.text.complete:
            return
        due_ms = next_due_ms(self.text.manifest, self.text.open_slots)
        now = asyncio.get_running_loop().time()
        reread = self._read_at + REREAD_S - now
        until_due = (due_ms - self._clock()) / 1000 if due_ms is not None else REREAD_S
        again = REREAD_S if self._hints.due is None else self._hints.due - now
        try:
            async with asyncio.timeout(max(self._pause_s(), min(reread, until_due, again))):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        hinted = self._hints.take(self.text.open_slots, loop.time())
        old = loop.time() - self._read_at >= REREAD_S
        if old or len(hinted) > FEW_SLOTS:
            await self._read_all()
        else:
            for slot in hinted:
                if (outcome := await self._bus.outcome(self._rid, slot)) is not None:
                    self._settled(outcome)
        self._hints.unread([slot for slot in hinted if slot in self.text.open_slots], loop.time(), REREAD_S)

    async def _read_all(self) -> None:
        record = await self._bus.request(self._rid)
        if record is None:
            raise NotFound(f"request {self._request_id}: there is none, or it has expired")
        self._read_at = asyncio.get_running_loop().time()
        if self._text is None:
            self._text = RequestText(record.manifest)
        for outcome in record.outcomes.values():
            self._settled(outcome)
        if self.text.has_gap:
            self._text_wanted.set()

    def _pause_s(self) -> float:
        """How long a broker that had no room for the last placeholder is not asked again; 0 if it had some."""
        if self._full_since is None:
            return 0.0
        return max(0.0, self._refused_at + REREAD_S - asyncio.get_running_loop().time())

    async def _settle_overdue(self) -> None:
        """Placeholders for slots whose time is over. A broker without room takes none; what it has can be read.

        It is not asked again at once, whatever wakes us: a placeholder that it refuses is heard as a hint, too.

        Raises:
            Overloaded: it had no room for too long.
        """
        if self._pause_s() > 0:
            return
        for placeholder in overdue(self.text.manifest, self.text.open_slots, self._clock()):
            try:
                stored = await self._bus.settle(placeholder)
            except Overloaded:
                self._refused_at = asyncio.get_running_loop().time()
                if self._full_since is None:
                    self._full_since = self._refused_at
                if self._refused_at - self._full_since > BUS_PATIENCE_S:
                    raise
                return
            metrics.PLACEHOLDERS.inc(stored == placeholder)
            self._settled(stored)
        self._full_since = None

    def _settled(self, outcome: Outcome) -> None:
        if self.text.settle(outcome):
            metrics.observe_end(outcome)
            self._tell([outcome.slot])

    def _tell(self, slots: list[int]) -> None:
        if slots:
            for reader in self._readers:
                reader.tell(slots)
