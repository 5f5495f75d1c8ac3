"""A question's way through a worker, from the take to the acknowledgement.

Everything here runs on the event loop and owns the channel pool and the held
questions. The core reports on its own thread; the worker carries each report
over to ``receive``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence

from inference_svc import telling
from inference_svc.arrivals import Arrival, Arrivals
from inference_svc.channels import ChannelPool
from inference_svc.core import Core
from inference_svc.gate import Gate, Verdict
from inference_svc.grammars.compiler import Grammars
from inference_svc.grammars.port import Grammar, Unusable
from inference_svc.handling import Handling
from inference_svc.hands import Fate, Hands, Held, Stage
from inference_svc.metrics import WorkerMetrics
from inference_svc.orders import order_of
from inference_svc.outcomes import Identity, Now, outcome_of
from inference_svc.report import End, Report
from inference_svc.settle import ack, settle_and_ack
from inference_svc.suspects import Suspects
from kev.bus.messages import CancelHint, Delta, Piece
from kev.bus.port import NOT_NOW, Bus, Taken
from kev.domain.errors import BusUnavailable

log = logging.getLogger(__name__)


class Serving:
    """All questions of one worker.

    Args:
        gate: Decides what becomes of a taken question.
        grammars: Makes constraints ready; stays the caller's.
        arrivals: Is told of questions that are being checked.
        freed: Called when a channel gets free, with whether it is one for long questions.
        pause: Called with a source to leave alone for a moment.
        strict: Whether pages are scrubbed whatever a batch asks for.

    Attributes:
        finished: Outcomes written and acknowledged.
        returned: Questions given back.
    """

    def __init__(
        self,
        bus: Bus,
        core: Core,
        gate: Gate,
        identity: Identity,
        now: Callable[[], Now],
        metrics: WorkerMetrics,
        grammars: Grammars,
        arrivals: Arrivals,
        *,
        freed: Callable[[bool], None],
        pause: Callable[[str], None],
        strict: bool,
    ) -> None:
        self._bus = bus
        self._core = core
        self._gate = gate
        self._identity = identity
        self._now = now
        self._metrics = metrics
        self._grammars = grammars
        self._arrivals = arrivals
        self._freed = freed
        self._pause = pause
        self._strict = strict
        self._pool = ChannelPool(identity.channels, identity.long_channels)
        self._hands = Hands()
        self._suspects = Suspects()
        self._news: asyncio.Queue[tuple[Sequence[Delta], Sequence[tuple[Held, End]]]] = asyncio.Queue()
        self._handling = Handling(self._let_go)
        self._empty = asyncio.Event()
        self._empty.set()
        self._forwards_seen = 0
        self.finished = 0
        self.returned = 0

    @property
    def free(self) -> int:
        """Free channels."""
        return self._pool.free

    def room(self, long: bool) -> int:
        """How many long questions, or such that are not, would find a channel."""
        return self._pool.room(long)

    @property
    def held(self) -> int:
        """Questions in hand."""
        return len(self._hands)

    # -- in --------------------------------------------------------------------------
    def accept(self, taken: Taken, source: str) -> None:
        """Seats a taken question and begins its checks. There must be a free channel.

        One that is in hand already came back because this worker was too slow to say that it lives, not because
        the question killed anybody: it goes on where it is.
        """
        older = self._hands.find(taken.question.rid, taken.question.slot)
        if older is not None and older.stage is not Stage.ENDING:
            older.renew(taken)
            return
        lane = taken.question.lane
        channel = self._pool.seat(lane.channel if lane.source == self._identity.worker_id else -1, lane.long)
        if channel is None:
            raise RuntimeError("a question was taken without a free channel")
        now = self._now()
        deadline = now.monotonic + (taken.question.deadline_ms - now.wall_ms) / 1000
        held = Held(self._hands.new_ticket(), taken, channel, self._identity.channel_name(channel), deadline)
        held.began = now.monotonic
        telling.taken(held)
        self._hands.add(held)
        self._empty.clear()
        arrival = self._arrivals.begin(soon=held.soon)
        self._handling.begin(self._check(held, source, arrival), held, arrival.over)

    async def _check(self, held: Held, source: str, arrival: Arrival) -> None:
        verdict = await self._gate.check(held)
        if verdict.runs and held.attempt > 1:
            verdict = await self._suspect(held)
        grammar: Grammar | None = None
        if verdict.runs and held.question.constraint is not None:
            verdict, grammar = await self._constrain(held, verdict)
        if held.fate is not Fate.ANSWER or not held.taken.held:
            verdict = Verdict(held.fate if held.taken.held else Fate.ABANDON)
        if verdict.fate is Fate.GIVE_BACK:
            self._pause(source)
        if verdict.runs:
            held.stage = Stage.RUNNING
            self._core.join(order_of(held, verdict, grammar, self._strict))
            arrival.over()
            return
        held.fate = verdict.fate
        arrival.over()
        self._unseat(held)
        await self._finish(held, verdict.end)

    async def _suspect(self, held: Held) -> Verdict:
        """A question that was taken before waits until no other such one runs. Checked again: time has passed."""
        held.stage = Stage.WAITING
        its_turn = await self._suspects.turn(held.ticket, held.deadline - self._now().monotonic)
        held.stage = Stage.CHECKING
        verdict = await self._gate.check(held)
        if not verdict.runs or held.fate is not Fate.ANSWER:
            return verdict
        if not its_turn:
            return self._gate.late()
        struck = await self._gate.strike(held)
        if struck.runs and not struck.alone:
            self._suspects.done(held.ticket)  # nobody need wait for its end
        return dataclasses.replace(struck, pool=verdict.pool) if struck.runs else struck

    async def _constrain(self, held: Held, verdict: Verdict) -> tuple[Verdict, Grammar | None]:
        """Makes the question's constraint ready, or says why it is refused."""
        assert held.question.constraint is not None
        try:
            async with asyncio.timeout(max(0.0, held.deadline - self._now().monotonic)):
                return verdict, await self._grammars.begin(held.question.constraint)
        except TimeoutError:
            return self._gate.late(), None
        except Unusable as error:
            return self._gate.refused(error.reason, str(error)), None

    # -- out -------------------------------------------------------------------------
    def receive(self, report: Report) -> None:
        """Takes a report of the core: streams its texts, frees the channels of its ends."""
        self._metrics.turn(report)
        pieces: defaultdict[str, list[Piece]] = defaultdict(list)
        for text in report.texts:
            held = self._hands.get(text.ticket)
            if held is not None and held.fate is Fate.ANSWER:
                held.grow(text.text)
                pieces[held.question.rid].append(held.piece(text.offset, text.text))
        deltas = [Delta(rid, self._identity.worker_id, tuple(some)) for rid, some in pieces.items()]
        ends = [(held, end) for end in report.ends if (held := self._hands.get(end.ticket)) is not None]
        for held, end in ends:
            held.stage = Stage.ENDING
            self._metrics.end(end)
            self._unseat(held)
        if deltas or ends:
            self._news.put_nowait((deltas, ends))

    async def tell(self) -> None:
        """Sends deltas in their order; a slot's outcome is written after its last delta. Runs until cancelled."""
        while True:
            deltas, ends = await self._news.get()
            await self._publish(deltas)
            for held, end in ends:
                self._handling.begin(self._finish(held, end), held)

    async def _publish(self, deltas: Sequence[Delta]) -> None:
        """Deltas may be lost: the outcome holds the whole text."""
        try:
            for delta in deltas:
                await self._bus.publish_delta(delta)
        except BusUnavailable:
            log.debug("deltas were lost: the broker does not answer")
        except Exception:
            log.exception("deltas were lost")

    async def _finish(self, held: Held, end: End | None) -> None:
        """Does what the question's fate calls for and lets it go."""
        held.stage = Stage.ENDING
        if held.fate is Fate.ANSWER and end is not None:
            settling = self._now()
            outcome = outcome_of(held, end, self._identity, settling)
            stored = await settle_and_ack(self._bus, held.taken, outcome)
            if stored == outcome:
                telling.ended(held, end, outcome, settling, self._now())
                self._metrics.settled(outcome)
            else:
                telling.dropped(held)  # somebody ended the slot first, or the request is gone
            self.finished += 1
        elif held.fate is Fate.DROP:
            telling.dropped(held)
            await ack(held.taken)
        elif held.fate is Fate.GIVE_BACK:
            await self._give_back(held)
        self._let_go(held)

    async def _give_back(self, held: Held) -> None:
        self.returned += 1
        telling.dropped(held)
        await self._excuse(held)
        try:
            await held.taken.give_back()
        except BusUnavailable:
            log.warning(
                "a question could not be given back; it comes back after its ack wait", extra=telling.facts_of(held)
            )

    async def _excuse(self, held: Held) -> None:
        """Whoever gives a question back lives: it killed nobody. Before it goes, so that its next taker knows."""
        if not held.excusable:
            return
        held.excusable = False
        try:
            await self._bus.excuse(*held.key)
        except NOT_NOW:
            log.debug(
                "a question that is given back could not be excused: it will run alone", extra=telling.facts_of(held)
            )

    # -- meanwhile -------------------------------------------------------------------
    def cancel(self, hint: CancelHint) -> None:
        """Takes a hint: looks for the outcomes, and frees the channels of slots that have one."""
        for slot in hint.slots:
            held = self._hands.find(hint.rid, slot)
            if held is not None and held.stage is not Stage.ENDING:
                self._handling.begin(self._confirm_cancel(held), None)

    async def _confirm_cancel(self, held: Held) -> None:
        try:
            outcome = await self._bus.outcome(*held.key)
        except BusUnavailable:
            return  # a hint only: the slot runs on, and its outcome will be the one that stands
        if outcome is not None:
            self._stop(held, Fate.DROP)

    def texts(self, rid: str) -> Sequence[Piece]:
        """The text so far of a request's running slots."""
        return self._hands.texts(rid)

    async def keep_alive(self) -> None:
        """Restarts the ack waits, of running and waiting questions only if forwards advanced since the last time."""
        advanced = self._core.forwards > self._forwards_seen
        self._forwards_seen = self._core.forwards
        told = [held for held in self._hands if advanced or held.stage in (Stage.CHECKING, Stage.ENDING)]
        await asyncio.gather(*(_progress(held) for held in told))  # together: a slow broker shall not cost the last one

    async def empty(self, timeout_s: float) -> bool:
        """Waits until no question is in hand; False if that takes longer."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def give_back_all(self) -> None:
        """Ends all runs without an outcome and puts their questions back."""
        for held in self._hands:
            if held.stage is not Stage.ENDING:
                self._stop(held, Fate.GIVE_BACK)

    async def give_back_now(self) -> None:
        """Puts back what is still in hand, without waiting for the core."""
        for held in self._hands:
            if held.fate is Fate.GIVE_BACK:
                await self._give_back(held)
                self._let_go(held)

    async def close(self) -> None:
        """Ends all tasks. What is still in hand goes to others after its ack wait."""
        await self._handling.close()

    # -- inside ----------------------------------------------------------------------
    def _stop(self, held: Held, fate: Fate) -> None:
        held.fate = fate
        if held.stage is Stage.RUNNING:
            self._core.leave(held.ticket)
        elif held.stage is Stage.WAITING:
            self._suspects.stop(held.ticket)

    def _unseat(self, held: Held) -> None:
        if held.seated:
            held.seated = False
            self._suspects.done(held.ticket)
            self._pool.leave(held.channel)
            self._freed(held.question.lane.long)

    def _let_go(self, held: Held) -> None:
        self._unseat(held)
        self._hands.remove(held)
        if not len(self._hands):
            self._empty.set()


async def _progress(held: Held) -> None:
    try:
        await held.taken.progress()
    except BusUnavailable:
        log.debug("the broker does not answer a progress")
