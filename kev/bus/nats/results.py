"""Manifests and outcomes: the first writer wins, decisions are read from the leader."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

import msgspec

from kev.bus.feed import BusStats
from kev.bus.messages import Manifest, RequestRecord, SlotPlan, decode, encode, ended_unrun
from kev.bus.nats.claims import Claims, Copy
from kev.bus.nats.link import Link
from kev.bus.nats.reading import last_at_leader, last_of_many
from kev.bus.nats.replies import LOST, ApiError
from kev.bus.nats.subjects import Names
from kev.bus.nats.together import Together
from kev.bus.port import Claim
from kev.domain.errors import BusUnavailable, NotFound
from kev.domain.outcome import FinishReason, Outcome, Status

log = logging.getLogger(__name__)
_IF_NONE = {"Nats-Expected-Last-Subject-Sequence": "0"}
_TRIES = 4
_MOST_TOLD = 1_000
_PAUSE_S = 0.05
_MOST_SUBJECTS = 1000
_FEW = 3
"""Up to so many outcomes are read one by one."""


class Results:
    """The stream of manifests and outcomes."""

    def __init__(self, link: Link, names: Names, ttl_s: float, stats: BusStats) -> None:
        self._claims = Claims(link, names, ttl_s)
        self._link = link
        self._names = names
        self._stream = names.result_stream
        self._stats = stats
        self._told: dict[tuple[str, int], None] = {}  # records that cannot be read are read again and again
        # What a worker has taken, and what ends in one forward, is mostly of one request.
        self._manifests: Together[str, str, bool] = Together(lambda subject, _: self._exists(subject))
        self._outcomes: Together[str, int, Mapping[int, bytes]] = Together(self._some_outcomes)

    async def open(self, manifest: Manifest) -> Claim:
        """See ``Bus.open_request``."""
        claim = await self._claims.open(manifest)
        if claim.first:
            # The id may have been used before, by a request whose outcomes outlived its manifest.
            await self._purge(manifest.rid, before=claim.number)
        return claim

    async def drop(self, rid: str, claim: int) -> None:
        """See ``Bus.drop_request``. Outcomes go only with a manifest that was gone before the last of them was
        looked at: what belongs to a request that somebody opens meanwhile comes later and stays."""
        if not claim:
            return
        await self._claims.give_up(claim)
        info = await self._link.api(f"STREAM.INFO.{self._stream}")
        if not await self._exists(self._names.manifest(rid)):
            await self._purge(rid, before=int(info["state"]["last_seq"]) + 1)

    async def settle(self, outcome: Outcome) -> Outcome:
        """See ``Bus.settle``."""
        if not await self._manifests.ask(self._names.manifest(outcome.rid), outcome.rid):
            raise NotFound(f"request {outcome.request_id}: there is none, or it has expired")
        other = await self._first(self._names.outcome(outcome.rid, outcome.slot), encode(outcome))
        stored = outcome if other is None else await self._read_in(outcome.rid, outcome.slot, other)
        if stored is None:
            raise NotFound(f"request {outcome.request_id}: there is none, or it has expired")
        return stored

    async def outcome(self, rid: str, slot: int) -> Outcome | None:
        """See ``Bus.outcome``."""
        found = (await self._outcomes.ask(rid, slot)).get(slot)
        return None if found is None else await self._read_in(rid, slot, found)

    async def stands(self, rid: str) -> bool:
        """See ``Bus.stands``."""
        return await self._exists(self._names.manifest(rid))

    async def request(self, rid: str) -> RequestRecord | None:
        """See ``Bus.request``.

        One call for everything; it may come from a replica that is a moment
        behind, so an absent manifest is looked up at the leader.
        """
        records = await self._all(rid)
        found = records.get(self._names.manifest(rid))
        stored = (found[0], decode(found[1], Copy)) if found else await self._claims.read(rid)
        if stored is None or self._claims.over(stored[1]):
            return None
        born, outcomes = stored[1].born or stored[0], {}
        for plan in stored[1].slots:
            sequence, data = records.get(self._names.outcome(rid, plan.slot), (0, b""))
            if sequence > born:
                outcomes[plan.slot] = self._outcome_in(rid, plan.slot, data) or _unreadable(stored[1], plan)
        return RequestRecord(stored[1].manifest(), outcomes)

    # -- writing -------------------------------------------------------------------
    async def _first(self, subject: str, data: bytes) -> bytes | None:
        """Writes a record if there is none; returns the stored one, None if it was written just now.

        A writer without an answer may have won: the leader tells who did.
        """
        last: Exception | None = None
        for attempt in range(_TRIES):
            try:
                await self._link.store(subject, data, _IF_NONE)
                return None
            except BusUnavailable as error:
                last = error
            except ApiError as error:
                if error.err_code not in LOST:
                    raise
                last = error
            stored = await last_at_leader(self._link, self._stream, subject)
            if stored is not None:
                return stored[1]
            await asyncio.sleep(_PAUSE_S * attempt)
        raise BusUnavailable(f"no decision about {subject}: {last}")

    async def _purge(self, rid: str, before: int) -> None:
        """Deletes those of a request's records that are older than a sequence."""
        await self._link.api(f"STREAM.PURGE.{self._stream}", {"filter": self._names.results(rid), "seq": before})

    # -- reading -------------------------------------------------------------------
    async def _read_in(self, rid: str, slot: int, data: bytes) -> Outcome | None:
        """A slot's stored outcome; None if it cannot be read, and the request is gone."""
        if (outcome := self._outcome_in(rid, slot, data)) is not None:
            return outcome
        found = await self._claims.read(rid)
        if found is None:
            return None
        return next((_unreadable(found[1], plan) for plan in found[1].slots if plan.slot == slot), None)

    def _outcome_in(self, rid: str, slot: int, data: bytes) -> Outcome | None:
        """The outcome in a slot's record; None if it holds none, which is told and counted once."""
        try:
            return decode(data, Outcome)
        except (msgspec.MsgspecError, ValueError) as error:
            if (rid, slot) not in self._told:
                self._told[rid, slot] = None
                if len(self._told) > _MOST_TOLD:
                    del self._told[next(iter(self._told))]
                self._stats.undecodable += 1
                log.error("undecodable outcome on %s: %s", self._names.outcome(rid, slot), error)
            return None

    async def _some_outcomes(self, rid: str, slots: Sequence[int]) -> Mapping[int, bytes]:
        """Outcomes of these slots, by the leader; not decoded, so that a bad one hurts nobody else. Of many slots most
        have none: one call tells which have."""
        if len(slots) > _FEW:
            there = await self._subjects(self._names.results(rid))
            slots = [slot for slot in slots if self._names.outcome(rid, slot) in there]
        subjects = [self._names.outcome(rid, slot) for slot in slots]
        found = await asyncio.gather(*(last_at_leader(self._link, self._stream, subject) for subject in subjects))
        return {slot: record[1] for slot, record in zip(slots, found, strict=True) if record is not None}

    async def _exists(self, subject: str) -> bool:
        """Whether there is a record, by the leader; cheaper than reading a large one."""
        return subject in await self._subjects(subject)

    async def _subjects(self, subject: str) -> Collection[str]:
        """The subjects that have records, by the leader; all of a request's fit into one answer."""
        info = await self._link.api(f"STREAM.INFO.{self._stream}", {"subjects_filter": subject})
        return info["state"].get("subjects") or {}

    async def _all(self, rid: str) -> dict[str, tuple[int, bytes]]:
        """All records of a request by subject, with their sequences."""
        records = await last_of_many(self._link, self._stream, [self._names.results(rid)])
        if records is not None:
            return records
        # More than one call may return: ask for the slots by name.
        found = await self._claims.read(rid)
        slots = [] if found is None else [self._names.outcome(rid, plan.slot) for plan in found[1].slots]
        records = {}
        for start in range(0, len(slots), _MOST_SUBJECTS):
            part = slots[start : start + _MOST_SUBJECTS]
            records |= await last_of_many(self._link, self._stream, part) or {}
        return records


def _unreadable(manifest: Manifest, plan: SlotPlan) -> Outcome:
    """What stands for a record that cannot be read: the slot has ended, because nobody can write another one, and
    readers of its request shall have the other slots."""
    detail = "the record of its end cannot be read"
    return ended_unrun(manifest, plan, Status.FAILED, FinishReason.ERROR, reason="unreadable", detail=detail)
