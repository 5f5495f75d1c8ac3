"""From pieces and outcomes to frames. Pure: no clock, no socket.

``RequestText`` is what one replica has heard of a request, shared by all its
readers. A ``View`` is where one reader stands in it: two numbers per slot. A
frame is the difference between the two, so a slow reader costs no memory:
what it has not read yet is simply a longer piece.

The rule that all of this serves: a reader's text since the last ``reset``
equals the outcome's text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kev.bus.messages import Manifest, Piece
from kev.domain.errors import InvalidArgument
from kev.domain.outcome import Outcome
from kev.domain.result import Frame, ResumePoint, SlotResult

MAX_HELD = 256
"""Pieces kept beyond a gap, per slot; the rest comes back with the catch-up text."""


@dataclass(slots=True)
class SlotText:
    """What was heard of one slot: the text of its latest attempt without
    gaps, pieces beyond a gap, and the outcome once it is there."""

    attempt: int = 0
    channel: str = ""
    text: str = ""
    held: dict[int, str] = field(default_factory=dict)
    outcome: Outcome | None = None
    rewritten: bool = False
    """The outcome's text does not continue what was heard."""

    def hear(self, piece: Piece) -> bool:
        """Takes a piece in; says whether readers may have something new."""
        if self.outcome is not None or piece.attempt < self.attempt:
            return False
        restarted = 0 < self.attempt < piece.attempt
        if piece.attempt > self.attempt:
            self.attempt, self.text = piece.attempt, ""
            self.held.clear()
        self.channel = piece.channel
        return self._add(piece.offset, piece.text) or restarted

    def settle(self, outcome: Outcome) -> bool:
        """Takes the outcome in: the truth, whatever was heard. Says whether it is new."""
        if self.outcome is not None:
            return False
        same_attempt = self.attempt in (0, outcome.attempt)
        self.rewritten = not (same_attempt and outcome.text.startswith(self.text))
        self.outcome = outcome
        self.text = ""
        self.held.clear()
        return True

    def _add(self, offset: int, text: str) -> bool:
        end = len(self.text)
        if offset > end:
            self._hold(offset, text)
            return False
        self.text += text[end - offset :]
        if self.held:
            self._close_gaps()
        return len(self.text) > end

    def _close_gaps(self) -> None:
        for start in sorted(self.held):
            if start > len(self.text):
                break
            self.text += self.held.pop(start)[len(self.text) - start :]

    def _hold(self, offset: int, text: str) -> None:
        if offset in self.held or len(self.held) < MAX_HELD:
            self.held[offset] = max(self.held.get(offset, ""), text, key=len)


class RequestText:
    """What was heard of one request, slot by slot, addressed by slot number."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.slots = {plan.slot: SlotText() for plan in manifest.slots}
        self._open = dict.fromkeys(self.slots)
        self._gaps: set[int] = set()

    def hear(self, pieces: Iterable[Piece]) -> list[int]:
        """Takes pieces in; returns the slots with something new for readers."""
        news: list[int] = []
        for piece in pieces:
            if (heard := self.slots.get(piece.slot)) is None:
                continue
            if heard.hear(piece):
                news.append(piece.slot)
            if heard.held:
                self._gaps.add(piece.slot)
            else:
                self._gaps.discard(piece.slot)
        return news

    def settle(self, outcome: Outcome) -> bool:
        """Takes an outcome in; says whether it is new."""
        heard = self.slots.get(outcome.slot)
        if heard is None or not heard.settle(outcome):
            return False
        del self._open[outcome.slot]
        self._gaps.discard(outcome.slot)
        return True

    @property
    def open_slots(self) -> tuple[int, ...]:
        """Slots without an outcome."""
        return tuple(self._open)

    @property
    def complete(self) -> bool:
        """Whether every slot has its outcome."""
        return not self._open

    @property
    def has_gap(self) -> bool:
        """Whether an open slot is held back by a missing piece."""
        return bool(self._gaps)

    def outcomes(self) -> dict[int, Outcome]:
        """Outcomes so far, by slot."""
        return {slot: heard.outcome for slot, heard in self.slots.items() if heard.outcome is not None}


class Place(NamedTuple):
    """Where a reader stands in a slot: characters it has of an attempt's text."""

    attempt: int = 0
    offset: int = 0


class View:
    """One reader's way through a request.

    Args:
        heard: The request's text, owned by somebody else.
        resume: Where a resuming reader stands; other slots begin at their start.

    Raises:
        InvalidArgument: a resume point names a slot that the request has not, or no place in a text.
    """

    def __init__(self, heard: RequestText, resume: Iterable[ResumePoint] = ()) -> None:
        self._heard = heard
        self._places = dict.fromkeys(heard.slots, Place())
        self._unfinished = set(heard.slots)
        for point in resume:
            if point.slot not in self._places:
                raise InvalidArgument("resume.slot", f"must be a slot of the request; got {point.slot}")
            if point.attempt < 0 or point.text_offset < 0:
                raise InvalidArgument("resume", "attempt and text_offset must be 0 or more")
            self._places[point.slot] = Place(point.attempt, point.text_offset)

    @property
    def done(self) -> bool:
        """Whether every slot's last frame was given out."""
        return not self._unfinished

    def frame(self, slot: int) -> Frame | None:
        """What the reader does not have yet of a slot; None when there is nothing."""
        if slot not in self._unfinished:
            return None
        heard = self._heard.slots[slot]
        frame = self._last(slot, heard.outcome) if heard.outcome else self._next(slot, heard)
        if frame is not None:
            self._places[slot] = Place(frame.attempt, frame.text_offset + len(frame.text))
        if heard.outcome is not None:
            self._unfinished.discard(slot)
        return frame

    def pending(self) -> list[Frame]:
        """Last frames of a reader that leaves early: ``pending`` for each slot that has not ended."""
        return [self._pending(slot) for slot in sorted(self._unfinished)]

    def _next(self, slot: int, heard: SlotText) -> Frame | None:
        place = self._places[slot]
        if heard.attempt < place.attempt:
            return None  # the reader comes from somewhere that had heard more
        same = heard.attempt == place.attempt
        offset = place.offset if same else 0
        reset = not same and place.offset > 0
        text = heard.text[offset:]
        if not text and not reset:
            return None
        return Frame(self._request_id, slot, heard.channel, heard.attempt, offset, text, reset)

    def _last(self, slot: int, outcome: Outcome) -> Frame:
        place, heard = self._places[slot], self._heard.slots[slot]
        continues = place.attempt == outcome.attempt and place.offset <= len(outcome.text) and not heard.rewritten
        reset = place.offset > 0 and not continues
        offset = 0 if reset else place.offset
        return Frame(
            request_id=self._request_id,
            slot=slot,
            channel=outcome.audit.channel or heard.channel,
            attempt=outcome.attempt,
            text_offset=offset,
            text=outcome.text[offset:],
            reset=reset,
            result=SlotResult.of(outcome),
        )

    def _pending(self, slot: int) -> Frame:
        place, heard = self._places[slot], self._heard.slots[slot]
        labels = {plan.slot: plan.id for plan in self._heard.manifest.slots}
        result = SlotResult(self._request_id, slot, labels[slot], attempt=place.attempt)
        return Frame(self._request_id, slot, heard.channel, place.attempt, place.offset, result=result)

    @property
    def _request_id(self) -> str:
        return self._heard.manifest.request_id
