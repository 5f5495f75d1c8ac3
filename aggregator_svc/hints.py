"""Which slots are said to have ended, and when to look for their records."""

from __future__ import annotations

from collections.abc import Collection

FIRST_PAUSE_S = 0.004


class Hints:
    """Slots whose outcome was heard of and not read yet.

    A hint is the message that the broker stores, and may be heard before it is stored. A slot
    without a record is therefore looked at again after a pause, which doubles. After ``longest_s``
    the write was refused, and the hint is forgotten.
    """

    def __init__(self) -> None:
        self._slots: dict[int, None] = {}  # in the order in which they ended
        self._pause_s = 0.0

    def heard(self, slot: int) -> None:
        """A slot is said to have ended."""
        self._slots[slot] = None

    def take(self, open_slots: Collection[int]) -> list[int]:
        """The slots to look at now."""
        taken = [slot for slot in self._slots if slot in open_slots]
        self._slots.clear()
        return taken

    def unread(self, slots: Collection[int], longest_s: float) -> None:
        """What is left of those that were taken: they had no record."""
        self._pause_s = 2 * self._pause_s or FIRST_PAUSE_S
        if slots and self._pause_s < longest_s:
            self._slots = {**dict.fromkeys(slots), **self._slots}
        else:
            self._pause_s = 0.0

    @property
    def pause_s(self) -> float | None:
        """How long to wait before slots without a record are looked at again; None if there are none."""
        return self._pause_s or None
