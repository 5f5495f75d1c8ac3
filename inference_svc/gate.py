"""Before a question enters a pack: may it, must it, and how?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inference_svc.hands import Fate, Held
from inference_svc.outcomes import Identity, Now, early_end
from inference_svc.pool_cache import PoolCache, PoolUnusable
from inference_svc.report import End
from inference_svc.rows import Int32Array
from inference_svc.settle import persist
from kev.bus.messages import READY
from kev.bus.port import Bus
from kev.domain.outcome import FinishReason
from kev.domain.question import Isolation

MOST_STRIKES = 3
CRASHED = "crashed"
"""Reason of a question that became a dead letter."""
CONTEXT_POOL = "context_pool"
"""Reason of a question whose context pool cannot be read."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a taken question.

    Attributes:
        fate: ``ANSWER`` unless it is dropped or given back.
        end: Its end, if it is decided without a forward.
        alone: It runs in forwards of its own.
        pool: Tokens of its context pool, None where it names none.
    """

    fate: Fate = Fate.ANSWER
    end: End | None = None
    alone: bool = False
    pool: Int32Array | None = None

    @property
    def runs(self) -> bool:
        """Whether the question goes to the core."""
        return self.fate is Fate.ANSWER and self.end is None


class Gate:
    """Checks taken questions against the bus and this worker's identity."""

    def __init__(self, bus: Bus, identity: Identity, now: Callable[[], Now]) -> None:
        self._bus = bus
        self._identity = identity
        self._now = now
        self._pools = PoolCache(bus)

    async def check(self, held: Held) -> Verdict:
        """Reads the outcome first: it covers lost acknowledgements, cancels and double publishes."""
        question = held.question
        if await persist(lambda: self._bus.outcome(question.rid, question.slot), "read outcome") is not None:
            return Verdict(Fate.DROP)
        if question.tokenizer_digest != self._identity.tokenizer_digest:
            return await self._foreign(held)
        if question.isolation.value not in self._identity.levels:
            served = ", ".join(self._identity.levels) or "none"
            return self._final(FinishReason.REFUSED, "not_served", f"isolation {question.isolation}: served: {served}")
        if not question.prompt:
            return self._final(FinishReason.REFUSED, "empty", "the prompt has no tokens")
        if held.deadline <= self._now().monotonic:
            return self.late()
        return await self._with_pool(held) if question.pool else Verdict()

    async def _with_pool(self, held: Held) -> Verdict:
        """Reads a question's context pool, which only ``loose`` may."""
        question = held.question
        if question.pool is None or question.isolation is not Isolation.LOOSE:
            return self._final(FinishReason.REFUSED, CONTEXT_POOL, "a context pool may be read at isolation loose only")
        try:
            return Verdict(pool=await self._pools.tokens(question.pool, question.tokenizer_digest))
        except PoolUnusable as error:
            return self._final(FinishReason.REFUSED, CONTEXT_POOL, str(error))

    async def strike(self, held: Held) -> Verdict:
        """A question that was taken before may have killed its worker: a strike, then alone, then not at all. One that
        was given back each time has been excused as often."""
        question = held.question
        strikes = await persist(lambda: self._bus.strike(question.rid, question.slot), "strike")
        held.excusable = True
        if strikes <= 0:
            return Verdict()
        if strikes < MOST_STRIKES:
            return Verdict(alone=True)
        detail = f"taken {held.taken.attempt} times without an end; it is not tried again"
        await persist(lambda: self._bus.dead_letter(question, detail, strikes), "dead letter")
        return self._final(FinishReason.ERROR, CRASHED, detail)

    def late(self) -> Verdict:
        """The end of a question whose deadline passed before its turn came."""
        return self._final(FinishReason.TIMEOUT, "", "the deadline passed in the queue")

    def refused(self, reason: str, detail: str) -> Verdict:
        """The end of a question that this worker cannot serve."""
        return self._final(FinishReason.REFUSED, reason, detail)

    async def _foreign(self, held: Held) -> Verdict:
        """A prompt of another tokenizer: for a worker that has it, if one lives."""
        fleet = await persist(self._bus.fleet, "fleet")
        wanted = held.question.tokenizer_digest
        if any(lease.tokenizer_digest == wanted and lease.state == READY for lease in fleet.values()):
            return Verdict(Fate.GIVE_BACK)
        detail = "the prompt was made with another tokenizer than this deployment's workers have"
        return self._final(FinishReason.ERROR, "tokenizer_mismatch", detail)

    def _final(self, finish: FinishReason, reason: str, detail: str) -> Verdict:
        return Verdict(end=early_end(finish, reason, detail, self._now()))
