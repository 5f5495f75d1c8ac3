"""From a batch to a request: its questions are prepared, and the manifest is written, unless it is there already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kev.bus.messages import Manifest, QueuedQuestion, RequestRecord
from kev.bus.port import Bus, Claim
from kev.config.settings import Settings
from kev.domain.errors import AlreadyUsed
from kev.domain.ids import rid_of
from kev.domain.outcome import Status
from kev.domain.question import Batch, Priority
from kev.telemetry import traces
from router_svc import metrics, records
from router_svc.admission import Refusal
from router_svc.contexts import Contexts
from router_svc.digest import digest_of
from router_svc.placing import Filling
from router_svc.prepare import Preparer, Ready
from router_svc.request import Request, Stands
from router_svc.strategies import Bucketing


class Opening:
    """Opens requests.

    Args:
        tokenizer_digest: Of the tokenizer that prepares the questions.
        check_room: Raises ``Overloaded`` for a new batch that could not go in anyway.
        clock: Unix milliseconds.
    """

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        preparer: Preparer,
        contexts: Contexts,
        *,
        tokenizer_digest: str,
        check_room: Callable[[Batch], None],
        clock: Callable[[], int],
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._preparer = preparer
        self._contexts = contexts
        self._tokenizer_digest = tokenizer_digest
        self._check_room = check_room
        self._clock = clock

    async def open(
        self, batch: Batch, request_id: str, bucketing: Bucketing, latest_ms: int | None, stands: Stands | None
    ) -> Request:
        """Prepares what has no outcome yet, and claims the request.

        Args:
            latest_ms: No slot's deadline is later (Unix milliseconds).

        Raises:
            InvalidArgument: the batch's prefix cannot be used.
            AlreadyUsed: the id names another batch.
            Overloaded: a new request has no chance of room.
            BusUnavailable: the broker does not answer.
        """
        rid, digest = rid_of(batch.tenant, request_id), await digest_of(batch)
        # Clients name their requests, and nearly all are new.
        known = bool(batch.request_id) and await self._bus.stands(rid)
        record = await self._bus.request(rid) if known else None
        if record is None:
            self._check_room(batch)
        else:
            _check_same(record.manifest, digest)
        slots = record.open_slots() if record else range(len(batch.questions))
        prepared = await self._prepared(batch, bucketing, slots)
        claim: Claim | None = None
        if record is None or _may_run(record, self._clock()):
            # A slot's time runs from here, not while a long neighbour was being tokenised.
            wanted = records.manifest_of(
                batch,
                self._settings,
                rid=rid,
                request_id=request_id,
                digest=digest,
                accepted_ms=self._clock(),
                latest_ms=latest_ms,
                traceparent=traces.current(),
            )
            claim = await self._bus.open_request(wanted)
            _check_same(claim.manifest, digest)
            record = None if claim.first else await self._bus.request(rid)
            record = record or RequestRecord(claim.manifest, {})
            # What had an outcome when this began may have none now: the request was given up and is opened anew.
            missing = [slot for slot in record.open_slots() if slot not in prepared]
            prepared |= await self._prepared(batch, bucketing, missing)
        if claim is None or not claim.first:
            await self._spare(rid, record, prepared)
        return self._sorted(batch, record, claim, prepared, stands)

    async def _spare(self, rid: str, record: RequestRecord, prepared: dict[int, Ready | Refusal]) -> None:
        """Takes out the questions that went in before: they need no room again, and lack of room must not refuse them.
        What they read, or what a deployment allows, may have changed since, but they were accepted: how they end is
        their workers' to say."""
        doubtful = [slot for slot in record.open_slots() if slot in prepared]
        for slot in await self._bus.put_in(rid, doubtful) if doubtful else ():
            del prepared[slot]

    async def _prepared(self, batch: Batch, bucketing: Bucketing, slots: Sequence[int]) -> dict[int, Ready | Refusal]:
        if not slots:
            return {}
        with metrics.PREPARE.time(), traces.span("router prepare", slots=len(slots)):
            questions = [batch.questions[slot] for slot in slots]
            around = await self._contexts.around(batch.tenant, batch.prefix, questions)
            ready = await self._preparer.prepare_all(questions, bucketing, around)
        return dict(zip(slots, ready, strict=True))

    def _sorted(
        self,
        batch: Batch,
        record: RequestRecord,
        claim: Claim | None,
        prepared: Mapping[int, Ready | Refusal],
        stands: Stands | None,
    ) -> Request:
        """The open slots: those to be refused, and those to be queued."""
        route = self._settings.router
        parallel = min(batch.max_parallel or route.max_parallel_queries, route.max_parallel_queries)
        strategy = (batch.strategy or route.strategy).value
        refusals: dict[int, Refusal] = {}
        waiting: list[tuple[QueuedQuestion, Priority]] = []
        for slot, item in prepared.items():
            if slot in record.outcomes:
                continue
            if isinstance(item, Refusal):
                refusals[slot] = item
                continue
            question = batch.questions[slot]
            queued = records.queued(
                record.manifest,
                question,
                item,
                slot=slot,
                max_parallel=parallel,
                tokenizer_digest=self._tokenizer_digest,
                strategy=strategy,
            )
            waiting.append((queued, question.priority))
        refused = {slot for slot, outcome in record.outcomes.items() if outcome.status is Status.REFUSED}
        return Request(record.manifest, claim, Filling(waiting), refusals, refused, stands)


def _may_run(record: RequestRecord, now_ms: int) -> bool:
    """Whether an open slot has time left."""
    return any(record.manifest.slots[slot].deadline_ms > now_ms for slot in record.open_slots())


def _check_same(stored: Manifest, digest: str) -> None:
    if stored.digest != digest:
        raise AlreadyUsed(f"request {stored.request_id}: this id names a different batch")
