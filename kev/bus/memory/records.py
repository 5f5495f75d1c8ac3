"""Manifests, outcomes and strikes, each kept for the result TTL: pure, time is passed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from kev.bus.messages import Manifest, RequestRecord
from kev.bus.port import Claim
from kev.domain.outcome import Outcome

K = TypeVar("K")
V = TypeVar("V")


class Expiring(Generic[K, V]):
    """A mapping whose entries vanish ``ttl_s`` after they were written.

    Every write moves the key to the end, so the oldest is always the first.
    """

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._items: dict[K, tuple[float, V]] = {}

    def get(self, key: K, now: float) -> V | None:
        """The live value of ``key``."""
        self._tidy(now)
        item = self._items.get(key)
        return None if item is None else item[1]

    def set(self, key: K, value: V, now: float) -> None:
        """Writes a value; its time starts anew."""
        self._tidy(now)
        self._items.pop(key, None)
        self._items[key] = (now + self._ttl_s, value)

    def drop(self, key: K) -> None:
        """Forgets a key, if it is there."""
        self._items.pop(key, None)

    def values(self, now: float) -> list[V]:
        """All live values, oldest first."""
        self._tidy(now)
        return [value for _, value in self._items.values()]

    def _tidy(self, now: float) -> None:
        while self._items:
            key = next(iter(self._items))
            if self._items[key][0] > now:
                return
            del self._items[key]


class Records:
    """The truth about requests. The first writer of a record wins."""

    def __init__(self, ttl_s: float) -> None:
        self._manifests: Expiring[str, Manifest] = Expiring(ttl_s)
        self._claims: Expiring[str, set[int]] = Expiring(ttl_s)
        self._numbers = 0
        self._outcomes: Expiring[tuple[str, int], Outcome] = Expiring(ttl_s)
        self._strikes: Expiring[tuple[str, int], int] = Expiring(ttl_s)

    def open(self, manifest: Manifest, now: float) -> Claim:
        """Stores the manifest if there is none; claims the request if it is the same.

        A new manifest starts without outcomes, also when its id was used
        before and outcomes outlived that manifest.
        """
        stored = self._manifests.get(manifest.rid, now)
        if stored is not None and stored.digest != manifest.digest:
            return Claim(stored, False, 0)
        self._numbers += 1
        if stored is not None:
            (self._claims.get(manifest.rid, now) or set()).add(self._numbers)
            return Claim(stored, False, self._numbers)
        self._forget_outcomes(manifest)
        self._manifests.set(manifest.rid, manifest, now)
        self._claims.set(manifest.rid, {self._numbers}, now)
        return Claim(manifest, True, self._numbers)

    def drop(self, rid: str, claim: int, now: float) -> None:
        """Gives up a claim; with the last one the request and its outcomes are forgotten."""
        manifest, claims = self._manifests.get(rid, now), self._claims.get(rid, now)
        if manifest is None or not claims or claim not in claims:
            return
        claims.remove(claim)
        if not claims:
            self._forget_outcomes(manifest)
            self._manifests.drop(rid)
            self._claims.drop(rid)

    def settle(self, outcome: Outcome, now: float, written: Callable[[Outcome], None]) -> Outcome | None:
        """The slot's stored outcome, calling ``written`` if it is this one; None without a manifest."""
        if self._manifests.get(outcome.rid, now) is None:
            return None
        stored = self.outcome(outcome.rid, outcome.slot, now)
        if stored is not None:
            return stored
        self._outcomes.set((outcome.rid, outcome.slot), outcome, now)
        written(outcome)
        return outcome

    def outcome(self, rid: str, slot: int, now: float) -> Outcome | None:
        """The slot's outcome, if it has one."""
        return self._outcomes.get((rid, slot), now)

    def request(self, rid: str, now: float) -> RequestRecord | None:
        """The request's manifest and the outcomes of its slots."""
        manifest = self._manifests.get(rid, now)
        if manifest is None:
            return None
        found = ((plan.slot, self.outcome(rid, plan.slot, now)) for plan in manifest.slots)
        return RequestRecord(manifest, {slot: outcome for slot, outcome in found if outcome is not None})

    def strike(self, rid: str, slot: int, now: float, count: int = 1) -> int:
        """Adds a strike, or takes one off; returns their number."""
        strikes = (self._strikes.get((rid, slot), now) or 0) + count
        self._strikes.set((rid, slot), strikes, now)
        return strikes

    def _forget_outcomes(self, manifest: Manifest) -> None:
        for plan in manifest.slots:
            self._outcomes.drop((manifest.rid, plan.slot))
