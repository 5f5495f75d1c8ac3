"""Strikes and dead letters."""

from __future__ import annotations

import json
import logging
import time

import msgspec
from nats.aio.msg import Msg

from kev.bus.messages import DeadLetter, QueuedQuestion, decode, encode
from kev.bus.nats.link import Link
from kev.bus.nats.replies import ended, status_of
from kev.bus.nats.subjects import Names
from kev.domain.ids import problem_id

log = logging.getLogger(__name__)
_REASON = "Kev-Reason"


class Dead:
    """Questions that killed their workers, or are on the way there."""

    def __init__(self, link: Link, names: Names) -> None:
        self._link = link
        self._names = names

    async def strike(self, rid: str, slot: int) -> int:
        """See ``Bus.strike``: the broker counts, so that no two strikes are one."""
        return await self._add(rid, slot, "+1")

    async def excuse(self, rid: str, slot: int) -> None:
        """See ``Bus.excuse``."""
        await self._add(rid, slot, "-1")

    async def dead_letter(self, question: QueuedQuestion, reason: str, strikes: int) -> None:
        """See ``Bus.dead_letter``."""
        letter = DeadLetter(question, reason, strikes, time.time_ns() // 1_000_000)
        headers = {"Nats-Msg-Id": problem_id(question.rid, question.slot), _REASON: reason}
        await self._link.store(self._names.dead, encode(letter), headers)

    async def bury(self, data: bytes, reason: str) -> None:
        """Keeps bytes that are no question, with the reason in a header."""
        await self._link.store(self._names.dead, data, {_REASON: reason})

    async def letters(self, most: int = 1000) -> tuple[DeadLetter, ...]:
        """Dead letters, oldest first, without what could not be decoded; for the operator."""
        request = json.dumps({"seq": 1, "batch": most, "next_by_subj": self._names.dead}).encode()
        replies = await self._link.gather(f"$JS.API.DIRECT.GET.{self._names.dead_stream}", request, ended)
        letters = (_letter(reply) for reply in replies if not status_of(reply))
        return tuple(letter for letter in letters if letter is not None)

    async def _add(self, rid: str, slot: int, count: str) -> int:
        answer = await self._link.store(self._names.strike(rid, slot), b"", {"Nats-Incr": count})
        return int(answer["val"])


def _letter(reply: Msg) -> DeadLetter | None:
    try:
        return decode(reply.data, DeadLetter)
    except (msgspec.MsgspecError, ValueError):
        log.warning("a dead letter that is no question: %s", (reply.headers or {}).get(_REASON, ""))
        return None
