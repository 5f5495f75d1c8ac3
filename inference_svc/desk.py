"""The runs of one worker with their answers: everything a forward touches.

Used by the core's thread only. One turn is: plan, forward, sample, report.
A fault in one slot's rows, sampling or text ends that slot and no other.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TypeAlias

from inference_svc.answer import Answer
from inference_svc.backends.port import Backend
from inference_svc.channels import Run
from inference_svc.clock import Clock
from inference_svc.grammars.port import GrammarFailed
from inference_svc.memory import Memory, TooBig
from inference_svc.report import End, Order, Report, Text
from inference_svc.rows import Float32Array, Pack
from inference_svc.sample import NonFiniteLogits
from inference_svc.schedule import Plan, Scheduler, Step
from kev.domain.outcome import FinishReason
from kev.telemetry.logs import hidden
from kev.tokens.tokenizer import Tokenizer

log = logging.getLogger(__name__)
CONSTRAINT = "constraint"
"""Reason of an answer that its own constraint left no way on: no fault of what it read."""
Computed: TypeAlias = tuple[Step, Float32Array | Exception]


@dataclass(slots=True, eq=False)
class Live:
    """A run and its answer. ``sent`` counts the characters reported so far."""

    order: Order
    run: Run
    answer: Answer
    started: float | None = None
    first: float | None = None
    overran: int = 0
    sent: int = 0


@dataclass(slots=True)
class _News:
    """What the next report will say."""

    texts: list[Text] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)


class Desk:
    """Live runs, their pages and the backend that computes them."""

    def __init__(
        self, backend: Backend, tokenizer: Tokenizer, memory: Memory, scheduler: Scheduler, clock: Clock
    ) -> None:
        self._backend = backend
        self._tokenizer = tokenizer
        self._memory = memory
        self._scheduler = scheduler
        self._clock = clock
        self._by_ticket: dict[int, Live] = {}
        self._by_channel: dict[int, Live] = {}
        self._news = _News()
        self._checks = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is live and nothing is left to report."""
        return not self._by_ticket and not self._news.ends

    @property
    def live(self) -> bool:
        """Whether any run is."""
        return bool(self._by_ticket)

    def join(self, order: Order) -> None:
        """Seats a run; one that can never run here ends at once."""
        try:
            answer = Answer(self._tokenizer, order.sampling, order.seed, order.job.prompt, order.grammar)
            run = self._scheduler.join(order.job)
        except TooBig as error:
            self._refuse(order, FinishReason.REFUSED, "too_long", str(error))
        except Exception as error:
            self._refuse(order, FinishReason.ERROR, "internal", hidden(error, log))
        else:
            live = Live(order, run, answer)
            self._by_ticket[order.ticket] = self._by_channel[order.job.channel] = live

    def end(self, ticket: int, finish: FinishReason, overran: int = 0) -> None:
        """Ends a run with the text so far; its channel is free at the next forward.

        Args:
            overran: Forwards that ended since its end was wished for.
        """
        if (live := self._by_ticket.get(ticket)) is not None:
            live.overran = overran
            self._finish(live, finish)

    def expire(self) -> None:
        """Ends the runs whose deadline has passed."""
        now = self._clock.monotonic()
        for live in [live for live in self._by_ticket.values() if live.order.deadline <= now]:
            self._finish(live, FinishReason.TIMEOUT)

    def plan(self) -> Plan | None:
        """The next forward, with the store made ready for it; None when nothing can run."""
        plan = self._scheduler.plan()
        self._tend_pages()
        return plan

    def run(self, plan: Plan) -> None:
        """Computes a forward and takes its tokens."""
        now = self._clock.monotonic()
        for step in plan.steps:
            live = self._by_channel.get(step.run.job.channel)
            if live is not None and live.started is None:
                live.started = now
        computed = self._compute(plan)
        self._scheduler.advance(plan)
        for step, result in computed:
            self._take(step, result)

    def report(self, plan: Plan | None, seconds: float) -> Report:
        """What happened since the last report."""
        news, self._news = self._news, _News()
        checks, self._checks = self._checks, 0
        lookups, evicted = self._memory.news()
        return Report(
            texts=tuple(news.texts),
            ends=tuple(news.ends),
            forward=plan.number if plan else 0,
            rows=sum(step.count for step in plan.steps) if plan else 0,
            channels=len(plan.steps) if plan else 0,
            seconds=seconds,
            phases=self._scheduler.phases(),
            pages_free=self._memory.available,
            prefill_rows=sum(step.count for step in plan.steps if step.of_prompt) if plan else 0,
            pages_prefix=self._memory.prefix_pages,
            checks=checks,
            lookups=lookups,
            evicted=evicted,
        )

    def check(self) -> None:
        """Scrubs what is left and checks that no page is lost or in two tables; for idle moments."""
        self._tend_pages()
        self._memory.check()
        self._checks += 1

    def _tend_pages(self) -> None:
        """Does to the store what the page tables call for, in their order."""
        if self._memory.scrubs:
            self._backend.scrub(self._memory.scrubs)
            self._memory.scrubs.clear()
        for source, target in self._memory.copies:
            self._backend.copy_page(source, target)
        self._memory.copies.clear()

    def _compute(self, plan: Plan) -> list[Computed]:
        """One forward; when the backend refuses it, each step on its own, so that only the culprit fails."""
        try:
            pack = plan.pack()
            logits = self._backend.forward(pack)
        except Exception:
            log.exception("a forward of %d steps failed; its steps are run one by one", len(plan.steps))
            return [(step, self._alone(step)) for step in plan.steps]
        offsets = pack.result_offsets()
        return [(step, logits[offsets[at] : offsets[at + 1]]) for at, step in enumerate(plan.steps)]

    def _alone(self, step: Step) -> Float32Array | Exception:
        try:
            return self._backend.forward(Pack.of([step.span()]))
        except Exception as error:
            return error

    def _take(self, step: Step, result: Float32Array | Exception) -> None:
        """One step's token, or its fault."""
        live = self._by_channel.get(step.run.job.channel)
        if live is None:
            if isinstance(result, Exception):
                self._memory.drop_fill(step.run)
            return
        try:
            if isinstance(result, Exception):
                raise result
            if step.wanted:
                self._grow(live, result[0])
        except NonFiniteLogits as error:
            self._fail(live, "non_finite", str(error))
        except GrammarFailed as error:
            self._fail(live, CONSTRAINT, str(error))
        except Exception as error:
            self._fail(live, "internal", hidden(error, log))

    def _grow(self, live: Live, logits: Float32Array) -> None:
        if live.first is None:
            live.first = self._clock.monotonic()
        token = live.answer.choose(logits)
        live.run.append(token)
        self._say(live, live.answer.add(token, live.run.full))
        if live.answer.finish is not None:
            self._close(live, live.answer.finish)

    def _say(self, live: Live, piece: str) -> None:
        if piece:
            self._news.texts.append(Text(live.order.ticket, live.sent, piece))
            live.sent += len(piece)

    def _finish(self, live: Live, finish: FinishReason) -> None:
        """Ends a run from outside: what was held back belongs to its text."""
        try:
            self._say(live, live.answer.end(finish))
        except Exception as error:
            self._fail(live, "internal", hidden(error, log))
        else:
            self._close(live, finish)

    def _fail(self, live: Live, reason: str, detail: str) -> None:
        self._close(live, FinishReason.ERROR, reason, detail)

    def _close(self, live: Live, finish: FinishReason, reason: str = "", detail: str = "") -> None:
        order, run, answer = live.order, live.run, live.answer
        del self._by_ticket[order.ticket], self._by_channel[order.job.channel]
        faulty = finish is FinishReason.ERROR
        self._scheduler.leave(run, faulty, blames_source=faulty and reason != CONSTRAINT)
        self._news.ends.append(
            End(
                ticket=order.ticket,
                finish=finish,
                text=answer.text,
                tokens=answer.tokens,
                forwards=run.forwards,
                started=live.started,
                ended=self._clock.monotonic(),
                reason=reason,
                detail=detail,
                reused=run.reused,
                first=live.first,
                overran=live.overran,
                logprobs=tuple(answer.logprobs),
            )
        )

    def _refuse(self, order: Order, finish: FinishReason, reason: str, detail: str) -> None:
        now = self._clock.monotonic()
        self._news.ends.append(End(order.ticket, finish, "", 0, 0, None, now, reason, detail))
