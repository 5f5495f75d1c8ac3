"""Which slots are said to have ended, and when to look for their records."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

FIRST_PAUSE_S = 0.004


class _Look(NamedTuple):
    """The next look at a slot: when, and how long the pause before it is."""

    due: float = 0.0
    pause_s: float = 0.0


class Hints:
    """Slots whose outcome was heard of and not read yet. Pure: time is passed in, in seconds.

    A hint is the message that the broker stores, and may be heard before it is stored. A slot
    without a record is therefore looked at again after a pause, which doubles. Each slot has a
    pause of its own: where many end one after the other, none waits for longer because others
    were heard of too early as well. After ``longest_s`` the write was refused, and the hint is
    forgotten.
    """

    def __init__(self) -> None:
        self._looks: dict[int, _Look] = {}  # in the order in which the slots ended
        self._taken: dict[int, _Look] = {}

    def heard(self, slot: int) -> None:
        """A slot is said to have ended."""
        self._looks[slot] = _Look()

    def take(self, open_slots: Collection[int], now: float) -> list[int]:
        """The slots to look at now."""
        looks = {slot: look for slot, look in self._looks.items() if slot in open_slots}
        self._taken = {slot: look for slot, look in looks.items() if look.due <= now}
        self._looks = {slot: look for slot, look in looks.items() if look.due > now}
        return list(self._taken)

    def unread(self, slots: Collection[int], now: float, longest_s: float) -> None:
        """What is left of those that were taken: they had no record."""
        pauses = {slot: 2 * self._taken[slot].pause_s or FIRST_PAUSE_S for slot in slots}
        again = {slot: _Look(now + pause, pause) for slot, pause in pauses.items() if pause < longest_s}
        self._looks = {**again, **self._looks}  # one that was heard of once more is looked at at once

    @property
    def due(self) -> float | None:
        """When slots without a record are looked at again; None if there are none."""
        return min((look.due for look in self._looks.values()), default=None)
