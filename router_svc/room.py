"""Room for requests: what becomes of a request's questions when there is room for them, and when there is none."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kev.bus.port import Bus
from kev.config.settings import OverflowPolicy, Settings
from kev.domain.errors import BusUnavailable, Overloaded
from kev.domain.outcome import Status
from kev.domain.question import Batch, Priority
from router_svc import metrics, records
from router_svc.admission import Refusal
from router_svc.lanes import Lanes
from router_svc.placing import Placer
from router_svc.request import Request
from router_svc.settling import Settling
from router_svc.tasks import to_the_end
from router_svc.watch import Watch

log = logging.getLogger(__name__)
OVERLOADED = "overloaded"


class Room:
    """Puts requests in.

    Args:
        clock: Unix milliseconds.
    """

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        assigner: Lanes,
        watch: Watch,
        placer: Placer,
        settling: Settling,
        clock: Callable[[], int],
    ) -> None:
        self._bus = bus
        self._policy = settings.router.overflow_policy
        self._lease_ms = settings.bus.lease_ms
        self._assigner = assigner
        self._watch = watch
        self._placer = placer
        self._settling = settling
        self._clock = clock

    def check(self, batch: Batch) -> None:
        """Refuses a new request that could not go in anyway, before any work is done for it.

        Raises:
            Overloaded: with the time after which to try again.
        """
        bands = {question.priority for question in batch.questions}
        if self._policy is OverflowPolicy.WAIT:
            self._placer.check(bands)
        elif not self._assigner.any_room() and bands == {Priority.NORMAL}:
            raise self._overloaded(len(batch.questions), 0)

    async def fill(self, request: Request) -> None:
        """Into the queues, then the refused slots. What is refused for good leaves nothing behind.

        Raises:
            Overloaded: no room, or too many wait already; nothing was kept.
            BusUnavailable: the broker does not answer, or has no room for the outcomes of refused slots.
        """
        filling = request.filling
        filling.drop_expired(self._clock())
        try:
            if not await self._placer.at_once(filling):
                await self._overflow(request)
        except Overloaded:
            if request.claim is not None and not filling.placed:
                await to_the_end(self._bus.drop_request(request.manifest.rid, request.claim.number))
            raise
        finally:
            if filling.placed:
                request.tell()  # also to a caller who leaves now: there is something to cancel
        await to_the_end(self._stand(request))

    async def _overflow(self, request: Request) -> None:
        if self._policy is not OverflowPolicy.WAIT:
            long = sum(question.lane.long for question, _ in request.filling.left)
            raise self._overloaded(len(request.filling.left) - long, long)
        await self._placer.patiently(request.filling, lambda: to_the_end(self._looked(request)))

    async def _looked(self, request: Request) -> None:
        """One look for room of several: what cannot be written down now is, after the next one."""
        try:
            await self._stand(request)
        except BusUnavailable as error:
            log.debug("refused slots wait for the broker: %s", error)

    async def _stand(self, request: Request) -> None:
        """From here on the request stands: readers may come, and refused slots get their outcomes.

        Raises:
            BusUnavailable: not all have one; the same submit again repairs that.
        """
        late = Refusal(OVERLOADED, "no channel had room before the question's deadline")
        for question in request.filling.late:
            request.refusals[question.slot] = late
        request.filling.late.clear()
        request.tell()
        refusals, expired, now_ms = request.refusals, request.filling.expired, self._clock()
        outcomes = [records.refused(request.manifest, slot, why, now_ms=now_ms) for slot, why in refusals.items()]
        outcomes += [records.timed_out(request.manifest, question.slot, now_ms=now_ms) for question in expired]
        try:
            settled = await self._settling.settle(outcomes)
        except Overloaded as error:  # which would say that nothing was kept
            raise BusUnavailable(f"refused slots could not be written down: {error}") from None
        request.refusals, request.filling.expired = {}, []
        for stored in settled:
            if stored.status is Status.REFUSED:
                request.refused.add(stored.slot)
                metrics.REFUSED.labels(stored.reason).inc()

    def _overloaded(self, short: int, long: int) -> Overloaded:
        if not self._assigner.ring:
            return Overloaded("no worker is ready", self._lease_ms)
        delay = self._watch.rate.retry_after_ms(self._assigner.missing(short, long))
        places, more = self._assigner.places(), short + long
        if self._policy is OverflowPolicy.REJECT and more > places:
            return Overloaded(f"no room for {more} more questions: all queues together have {places} places", delay)
        return Overloaded(f"no room for {more} more questions", delay)
