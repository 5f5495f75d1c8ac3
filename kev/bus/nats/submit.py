"""Putting questions in: the whole set or nothing, each question once."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from kev.bus.checks import Bells, bells_for, unique
from kev.bus.messages import OVERFLOW, Bell, Lane, QueuedQuestion, encode
from kev.bus.nats.link import Headers, Link
from kev.bus.nats.replies import STORE_FAILED, ApiError, seconds_of
from kev.bus.nats.shards import by_lane, fill, spread
from kev.bus.nats.subjects import Names
from kev.bus.settings import BusSettings
from kev.domain.errors import BusUnavailable
from kev.domain.ids import problem_id
from kev.telemetry import traces

_ALREADY_IN = 10201
# A double that is being put in right now, a batch that lost its beginning, too many open batches.
_TRY_AGAIN = (10158, 10176, 10210)
_NO_ROLLUP = 10111
_TRIES_WITH_ROOM = 4

Depths = dict[tuple[Lane, int], int]
_TRIES = 20
_MOST_OPEN = 8
_PAUSE_S = 0.02


class Submit:
    """The router's side of the queues."""

    def __init__(self, link: Link, names: Names, settings: BusSettings) -> None:
        self._link = link
        self._names = names
        self._bound = settings.queue_bound
        self._shared_bound = settings.shared_bound
        self._subjects = settings.shared_lane_subjects
        # The broker opens every batch on its disk: more at once only wait there.
        self._open = asyncio.Semaphore(_MOST_OPEN)
        self._grace_ms = int(settings.question_grace_s * 1000)
        self.oldest_s = 0.0

    async def enqueue(self, questions: Sequence[QueuedQuestion]) -> frozenset[Lane]:
        """See ``Bus.enqueue``."""
        missing = unique(questions)
        bells = bells_for(missing)
        doubles = False
        depths: Depths | None = None
        for attempt in range(_TRIES):
            try:
                if doubles:
                    missing = await self._still_missing(missing)
                async with self._open:
                    await self._publish(missing, self._numbers(missing, depths))
            except ApiError as error:
                if error.err_code == STORE_FAILED:
                    depths = await self._subject_depths()
                    if full := self._full_lanes(missing, depths, attempt):
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

    async def put_in(self, rid: str, slots: Sequence[int]) -> frozenset[int]:
        """See ``Bus.put_in``."""
        known = await asyncio.gather(*(self._is_in(rid, slot) for slot in slots))
        return frozenset(slot for slot, is_in in zip(slots, known, strict=True) if is_in)

    async def ring(self, bells: Bells) -> None:
        """Rings the bells of these workers, or of ``any``."""
        for name, queues in bells.items():
            await self._link.send(self._names.bell(name), encode(Bell(queues)))

    async def depths(self) -> Mapping[Lane, int]:
        """See ``Bus.depths``: one call, however many lanes."""
        return by_lane((await self._subject_depths()).items())

    async def _subject_depths(self) -> Depths:
        request = {"subjects_filter": self._names.queues}
        info = await self._link.api(f"STREAM.INFO.{self._names.queue_stream}", request)
        state = info["state"]
        self.oldest_s = max(0.0, seconds_of(info["ts"]) - seconds_of(state["first_ts"])) if state["messages"] else 0.0
        counts = (state.get("subjects") or {}).items()
        places = ((self._names.lane_of(subject), depth) for subject, depth in counts)
        return {place: depth for place, depth in places if place is not None}

    def _numbers(self, questions: Sequence[QueuedQuestion], depths: Depths | None) -> list[int]:
        """Which subject of its lane each question goes to: any, until one was full."""
        lanes = [question.lane for question in questions]
        if depths is None:
            return spread(lanes, self._subjects, random.randrange(self._subjects))
        return fill(lanes, self._subjects, depths)

    async def _publish(self, questions: Sequence[QueuedQuestion], numbers: Sequence[int]) -> None:
        """One atomic publish. The first message is answered, so that a broker that
        takes no batch now is known before the rest is sent; the last one commits."""
        batch, last = secrets.token_hex(16), len(questions)
        for number, (question, place) in enumerate(zip(questions, numbers, strict=True), start=1):
            subject, headers = self._names.lane(question.lane, place), self._headers(question)
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
        headers = {"Nats-Msg-Id": problem_id(question.rid, question.slot), "Nats-TTL": str(ttl_s)}
        if traceparent := traces.current():
            headers[traces.HEADER] = traceparent
        return headers

    async def _still_missing(self, questions: Sequence[QueuedQuestion]) -> list[QueuedQuestion]:
        known = await asyncio.gather(*(self._is_in(question.rid, question.slot) for question in questions))
        return [question for question, is_in in zip(questions, known, strict=True) if not is_in]

    async def _is_in(self, rid: str, slot: int) -> bool:
        """Asks without putting anything in: the broker's leader looks for a double, in whatever lane,
        first, and then refuses an impossible rollup before it stores anything."""
        headers = {"Nats-Msg-Id": problem_id(rid, slot), "Nats-Rollup": "none"}
        try:
            answer = await self._link.store(self._names.lane(OVERFLOW), b"", headers)
        except ApiError as error:
            if error.err_code != _NO_ROLLUP:
                raise
            return False
        return bool(answer.get("duplicate"))

    def _full_lanes(self, questions: Sequence[QueuedQuestion], depths: Depths, attempt: int) -> frozenset[Lane]:
        """The broker does not say which lane was full. None is, when a question left
        in between: then it is worth another try, but not for ever."""
        wanted, lanes = Counter(question.lane for question in questions), by_lane(depths.items())
        room = {lane: self._room(lane) - lanes.get(lane, 0) - count for lane, count in wanted.items()}
        least = 0 if attempt < _TRIES_WITH_ROOM else min(room.values()) + 1
        return frozenset(lane for lane, left in room.items() if left < least)

    def _room(self, lane: Lane) -> int:
        return self._shared_bound if lane.shared else self._bound
