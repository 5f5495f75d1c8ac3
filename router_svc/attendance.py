"""Who is there for which request: an Ask's leaving cancels the request only if nobody else is there for it.

This router's callers only: one that comes back must come back here.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from enum import Enum, auto


class Left(Enum):
    """What a caller's leaving means."""

    OTHERS = auto()
    """Somebody else is there."""
    LAST = auto()
    """Nobody is there now; the caller may come back."""
    FOR_GOOD = auto()
    """Nobody is there, and the caller has said that it does not come back."""


class Attendance:
    """Callers by request. One event loop."""

    def __init__(self) -> None:
        self._there: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._leaving: set[tuple[str, str]] = set()
        self._kept: defaultdict[str, dict[str, asyncio.Future[bool]]] = defaultdict(dict)

    def enter(self, rid: str, ask_id: str) -> None:
        """A caller is there; perhaps once more, because its old connection is not known to be gone yet."""
        self._there[rid][ask_id] += 1
        for waiting in self._kept.pop(rid, {}).values():
            _answer(waiting, False)

    def leave(self, rid: str, ask_id: str) -> Left:
        """A connection of a caller has ended."""
        there = self._there[rid]
        there[ask_id] -= 1
        if there[ask_id] <= 0:
            del there[ask_id]
        for_good = (rid, ask_id) in self._leaving and ask_id not in there
        if for_good:
            self._leaving.discard((rid, ask_id))
        if there:
            return Left.OTHERS
        del self._there[rid]
        return Left.FOR_GOOD if for_good else Left.LAST

    async def deserted(self, rid: str, ask_id: str, keep_s: float) -> bool:
        """Waits for the last caller to come back; whether nobody did."""
        waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._kept[rid][ask_id] = waiting
        try:
            async with asyncio.timeout(keep_s):
                return await waiting
        except TimeoutError:
            return True
        finally:
            if self._kept[rid].get(ask_id) is waiting:
                del self._kept[rid][ask_id]
            if not self._kept[rid]:
                del self._kept[rid]

    def leaves(self, rid: str, ask_id: str) -> bool:
        """A caller says that it does not come back; whether the request is nobody's then.

        A caller that is not known here may name anybody's request: that one is not touched.
        """
        if (waiting := self._kept.get(rid, {}).get(ask_id)) is not None:
            _answer(waiting, True)
            return True
        there = self._there.get(rid)
        if there is None or ask_id not in there:
            return False
        self._leaving.add((rid, ask_id))
        return set(there) == {ask_id}

    def __len__(self) -> int:
        return len(self._there) + len(self._kept) + len(self._leaving)


def _answer(waiting: asyncio.Future[bool], nobody: bool) -> None:
    if not waiting.done():
        waiting.set_result(nobody)
