"""Where a reader stands in a stream, so that it can go on elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kev.domain.result import PENDING, Frame, ResumePoint


class Progress:
    """Follows the frames that a reader was given.

    Args:
        resume: Where it stood before.
    """

    def __init__(self, resume: Iterable[ResumePoint] = ()) -> None:
        self._places = {point.slot: point for point in resume}
        self._ended: set[int] = set()

    def take(self, frame: Frame) -> bool:
        """Notes a frame. False if the reader has its slot's last frame already: drop it."""
        if frame.slot in self._ended:
            return False
        self._places[frame.slot] = ResumePoint(frame.slot, frame.attempt, frame.text_offset + len(frame.text))
        if frame.result is not None and frame.result.status != PENDING:
            self._ended.add(frame.slot)
        return True

    @property
    def began(self) -> bool:
        """Whether any frame has come."""
        return bool(self._places)

    def points(self) -> tuple[ResumePoint, ...]:
        """Where to go on."""
        return tuple(self._places.values())
