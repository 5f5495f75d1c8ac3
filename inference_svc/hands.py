"""The questions in a worker's hands, from the take to the acknowledgement. Event loop only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from kev.bus.messages import Piece, QueuedQuestion
from kev.bus.port import Taken


class Fate(Enum):
    """What is done with a question when its run has ended."""

    ANSWER = auto()
    """Write the outcome, then acknowledge."""
    DROP = auto()
    """Acknowledge: somebody has written its outcome."""
    GIVE_BACK = auto()
    """Put it back for another worker."""
    ABANDON = auto()
    """Nothing: it is in other hands already."""


class Stage(Enum):
    """How far a question is."""

    CHECKING = auto()
    WAITING = auto()
    RUNNING = auto()
    ENDING = auto()


@dataclass(slots=True, eq=False)
class Held:
    """One taken question.

    Attributes:
        ticket: Names this hold; never used twice.
        channel: Its seat, kept until the run has ended.
        seated: Whether the seat is still taken.
        deadline: Monotonic seconds.
        began: When it was taken, monotonic seconds.
        attempt: Of the delivery that this hold began with; its text counts as that attempt's.
        excusable: Whether all deliveries before this one are accounted for, by strikes: if this one is given back, the
            strike that the next one brings is not deserved.
    """

    ticket: int
    taken: Taken
    channel: int
    channel_name: str
    deadline: float
    stage: Stage = Stage.CHECKING
    fate: Fate = Fate.ANSWER
    seated: bool = True
    began: float = 0.0
    attempt: int = field(init=False)
    excusable: bool = field(init=False)
    _parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.attempt = self.taken.attempt
        self.excusable = self.attempt == 1

    @property
    def question(self) -> QueuedQuestion:
        """What was taken."""
        return self.taken.question

    @property
    def key(self) -> tuple[str, int]:
        """Request and slot."""
        return self.question.rid, self.question.slot

    @property
    def soon(self) -> bool:
        """Whether nothing is known that its check may have to wait for: a turn, a constraint or a context pool."""
        return self.attempt == 1 and self.question.constraint is None and self.question.pool is None

    def piece(self, offset: int, text: str) -> Piece:
        """A piece of this slot's text."""
        return Piece(self.question.slot, self.attempt, self.channel_name, offset, text)

    def renew(self, taken: Taken) -> None:
        """The ack wait had passed and the same question came here again: the work goes on under the new delivery."""
        self.taken = taken

    def grow(self, text: str) -> None:
        """Remembers streamed text for readers that come late."""
        self._parts.append(text)

    def whole(self) -> Piece:
        """The text so far, in one piece."""
        self._parts = ["".join(self._parts)]
        return self.piece(0, self._parts[0])


class Hands:
    """All held questions."""

    def __init__(self) -> None:
        self._by_ticket: dict[int, Held] = {}
        self._by_key: dict[tuple[str, int], Held] = {}
        self._tickets = 0

    def __len__(self) -> int:
        return len(self._by_ticket)

    def __iter__(self) -> Iterator[Held]:
        return iter(tuple(self._by_ticket.values()))

    def new_ticket(self) -> int:
        """A number that was never given before."""
        self._tickets += 1
        return self._tickets

    def add(self, held: Held) -> None:
        """Takes a question in."""
        self._by_ticket[held.ticket] = self._by_key[held.key] = held

    def get(self, ticket: int) -> Held | None:
        """The hold with this ticket."""
        return self._by_ticket.get(ticket)

    def find(self, rid: str, slot: int) -> Held | None:
        """The newest hold of a slot."""
        return self._by_key.get((rid, slot))

    def remove(self, held: Held) -> None:
        """Lets a question go."""
        self._by_ticket.pop(held.ticket, None)
        if self._by_key.get(held.key) is held:
            del self._by_key[held.key]

    def texts(self, rid: str) -> tuple[Piece, ...]:
        """The text so far of a request's slots in these hands."""
        mine = (held for held in self._by_key.values() if held.question.rid == rid and held.fate is Fate.ANSWER)
        return tuple(held.whole() for held in mine if held.stage in (Stage.RUNNING, Stage.ENDING))
