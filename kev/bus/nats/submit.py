"""Putting questions in: the whole set or nothing, each question once."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from kev.bus.checks import bells_for, unique
from kev.bus.messages import Lane, QueuedQuestion, encode
from kev.bus.nats.link import STORE_FAILED, ApiError, Headers, Link
from kev.bus.nats.subjects import Names
from kev.bus.settings import BusSettings
from kev.domain.errors import BusUnavailable
from kev.domain.ids import problem_id

_ALREADY_IN = 10201
# A double that is being put in right now, a batch that lost its beginning, too many open batches.
_TRY_AGAIN = (10158, 10176, 10210)
_NO_ROLLUP = 10111
_TRIES = 20
_PAUSE_S = 0.02


class Submit:
    """The router's side of the queues."""

    def __init__(self, link: Link, names: Names, settings: BusSettings) -> None:
        self._link = link
        self._names = names
        self._bound = settings.queue_bound
        self._grace_ms = int(settings.question_grace_s * 1000)

    async def enqueue(self, questions: Sequence[QueuedQuestion]) -> frozenset[Lane]:
        """See ``Bus.enqueue``."""
        missing = unique(questions)
        bells = bells_for(missing)
        doubles = False
        for attempt in range(_TRIES):
            try:
                if doubles:
                    missing = await self._still_missing(missing)
                await self._publish(missing)
            except ApiError as error:
                if error.err_code == STORE_FAILED:
                    if full := await self._full_lanes(missing, attempt):
                        return full
                elif error.err_code == _ALREADY_IN:
                    doubles = True
                elif error.err_code not in _TRY_AGAIN:
                    raise
                await asyncio.sleep(_PAUSE_S * attempt * random.random())
            else:
                await self.ring(bells)
                return frozenset()
        raise BusUnavailable("the broker did not take a batch: too many are open at once")

    async def ring(self, bells: frozenset[str]) -> None:
        """Rings the bells of these workers, or of ``any``."""
        for name in bells:
            await self._link.send(self._names.bell(name))

    async def depths(self) -> Mapping[Lane, int]:
        """See ``Bus.depths``: one call, however many lanes."""
        request = {"subjects_filter": self._names.queues}
        info = await self._link.api(f"STREAM.INFO.{self._names.queue_stream}", request)
        counts = (info["state"].get("subjects") or {}).items()
        lanes = ((self._names.lane_of(subject), depth) for subject, depth in counts)
        return {lane: depth for lane, depth in lanes if lane is not None}

    async def _publish(self, questions: Sequence[QueuedQuestion]) -> None:
        """One atomic publish. The first message is answered, so that a broker that
        takes no batch now is known before the rest is sent; the last one commits."""
        batch, last = secrets.token_hex(16), len(questions)
        for number, question in enumerate(questions, start=1):
            subject, headers = self._names.lane(question.lane), self._headers(question)
            if last > 1:
                headers |= {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
                if number == last:
                    headers["Nats-Batch-Commit"] = "1"
            if number in (1, last):
                await self._link.store(subject, encode(question), headers)
            else:
                await self._link.publish(subject, encode(question), headers)

    def _headers(self, question: QueuedQuestion) -> Headers:
        """The broker drops the question by itself some time after its deadline."""
        left_ms = question.deadline_ms + self._grace_ms - time.time_ns() // 1_000_000
        ttl_s = max(1, -(-left_ms // 1000))
        return {"Nats-Msg-Id": problem_id(question.rid, question.slot), "Nats-TTL": str(ttl_s)}

    async def _still_missing(self, questions: Sequence[QueuedQuestion]) -> list[QueuedQuestion]:
        known = await asyncio.gather(*(self._is_in(question) for question in questions))
        return [question for question, is_in in zip(questions, known, strict=True) if not is_in]

    async def _is_in(self, question: QueuedQuestion) -> bool:
        """Asks without putting anything in: the broker's leader looks for a double
        first, and then refuses an impossible rollup before it stores anything."""
        headers = {"Nats-Msg-Id": problem_id(question.rid, question.slot), "Nats-Rollup": "none"}
        try:
            answer = await self._link.store(self._names.lane(question.lane), b"", headers)
        except ApiError as error:
            if error.err_code != _NO_ROLLUP:
                raise
            return False
        return bool(answer.get("duplicate"))

    async def _full_lanes(self, questions: Sequence[QueuedQuestion], attempt: int) -> frozenset[Lane]:
        """The broker does not say which lane was full. None is, when a question left
        in between: then it is worth another try, but not for ever."""
        wanted = Counter(question.lane for question in questions)
        depths = await self.depths()
        load = {lane: depths.get(lane, 0) + count for lane, count in wanted.items()}
        most = max(load.values())
        least = self._bound + 1 if attempt < 3 else most
        return frozenset(lane for lane, count in load.items() if count >= least)
