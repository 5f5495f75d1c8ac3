"""The texts of a running batch, put together from its frames: pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from kev.domain.result import Frame, SlotResult


@dataclass(slots=True)
class Answer:
    """One slot so far. ``text`` is put together from the pieces alone."""

    text: str = ""
    result: SlotResult | None = None


@dataclass(slots=True)
class Answers:
    """All slots of a batch."""

    slots: dict[int, Answer] = field(default_factory=dict)
    request_id: str = ""

    def take(self, frame: Frame) -> Answer:
        """Adds a frame; returns its slot as it is now."""
        self.request_id = frame.request_id
        answer = self.slots.setdefault(frame.slot, Answer())
        answer.text = frame.text if frame.reset else answer.text[: frame.text_offset] + frame.text
        answer.result = frame.result or answer.result
        return answer

    def streamed(self, slot: int) -> str:
        """The text of a slot as its pieces have made it."""
        return self.slots[slot].text

    @property
    def complete(self) -> bool:
        """Whether every slot seen so far was answered."""
        return all(answer.result is not None and answer.result.ok for answer in self.slots.values())


def ending(result: SlotResult) -> str:
    """One line about a slot that was not simply answered; empty if it was."""
    if result.ok:
        return "; ".join(result.warnings)
    return ": ".join(part for part in (result.status.replace("_", " "), result.reason, result.detail) if part)
