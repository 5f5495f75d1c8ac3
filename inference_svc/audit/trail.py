"""A backend that leaves a trail: every forward, or a share of them, as a line of the audit log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from inference_svc.audit.layout import Part
from inference_svc.audit.record import Record, Source, Texts, logits_digest
from inference_svc.audit.writer import Waiting, Writer
from inference_svc.backends.passing import PassingBackend
from inference_svc.backends.port import Backend
from inference_svc.rows import PAGE_SIZE, Float32Array, Int32Array, Pack, Span, pages_for

log = logging.getLogger(__name__)
Books = Callable[[int], tuple[frozenset[int], frozenset[int]]]
"""What the page allocator says of a channel: its pages, and those of them that others hold, too."""


@dataclass(frozen=True, slots=True)
class TrailOptions:
    """How much is logged.

    Attributes:
        rate: Share of the forwards, 0 to 1; they are taken evenly.
        tokens: Whether token ids are logged: with them a text can be read.
        logits: Whether digests of the logits are.
    """

    rate: float = 1.0
    tokens: bool = False
    logits: bool = False


_MOST_SEATS = 2048
"""More than there can be channels; computations of prefixes get a number of their own each."""


@dataclass(slots=True)
class _Seat:
    """A channel's run: known by its page table, which is its own object as long as it lives."""

    table: Int32Array
    run: int
    logged: int = -1
    """Position up to which the file holds its tokens."""


class AuditedBackend(PassingBackend):
    """Passes everything on, and notes what went into a forward.

    The tables in a record are those that the kernel was handed. The grants are
    the allocator's, read before the forward: two books that must agree.

    Args:
        books: The allocator's view of a channel.
        wall_ms: Wall clock.
    """

    def __init__(
        self,
        backend: Backend,
        writer: Writer,
        source: Source,
        books: Books,
        options: TrailOptions,
        wall_ms: Callable[[], int],
    ) -> None:
        super().__init__(backend)
        self._writer = writer
        self._source = source
        self._books = books
        self._options = options
        self._wall_ms = wall_ms
        self._stored: npt.NDArray[np.int32] | None = (
            np.zeros((backend.pages, PAGE_SIZE), np.int32) if options.tokens else None
        )
        self._seats: dict[int, _Seat] = {}
        self._runs = self._forwards = self._turns = 0
        self._due = 0.0

    def forward(self, pack: Pack) -> Float32Array:
        """See ``Backend.forward``."""
        logits = super().forward(pack)
        try:
            self._note(pack, logits)
        except Exception:
            log.exception("a forward was not logged")
        return logits

    def copy_page(self, source: int, target: int) -> None:
        """See ``Backend.copy_page``."""
        super().copy_page(source, target)
        if self._stored is not None:
            self._stored[target] = self._stored[source]

    def close(self) -> None:
        """See ``Backend.close``; the writer stays its owner's."""
        self._inner.close()

    def _note(self, pack: Pack, logits: Float32Array) -> None:
        self._forwards += 1
        seats = [self._seat(span) for span in pack.spans]
        if self._stored is not None:
            for span in pack.spans:
                places = np.arange(span.position, span.end)
                self._stored[span.table[places // PAGE_SIZE], places % PAGE_SIZE] = span.tokens
        self._due += self._options.rate
        if self._due < 1.0:
            return
        self._due -= 1.0
        if self._turns != self._writer.turns:
            self._turns = self._writer.turns
            for seat in self._seats.values():
                seat.logged = -1
        layout = [self._part(span, seat) for span, seat in zip(pack.spans, seats, strict=True)]
        texts = [self._texts(span, seat) for span, seat in zip(pack.spans, seats, strict=True)]
        kept = logits if self._options.logits else None
        line = partial(_line, self._source, self._forwards, self._wall_ms(), layout, texts, kept)
        size = (0 if kept is None else kept.nbytes) + 4096
        taken = self._writer.put(Waiting(line, size))
        for span, seat in zip(pack.spans, seats, strict=True):
            seat.logged = span.end if taken else -1

    def _seat(self, span: Span) -> _Seat:
        seat = self._seats.get(span.channel)
        if seat is None or seat.table is not span.table:
            self._runs += 1
            if len(self._seats) >= _MOST_SEATS:
                self._seats = {channel: seat for channel, seat in self._seats.items() if channel >= 0}
            seat = self._seats[span.channel] = _Seat(span.table, self._runs)
        return seat

    def _part(self, span: Span, seat: _Seat) -> Part:
        pages = tuple(span.table[: pages_for(span.end)].tolist())
        held, shared = self._books(span.channel)
        return Part(
            span.channel,
            seat.run,
            span.position,
            span.count,
            span.wanted,
            pages,
            shared.intersection(pages),
            frozenset(page for page in pages if page not in held),
        )

    def _texts(self, span: Span, seat: _Seat) -> Texts:
        if self._stored is None:
            return Texts()
        before = None
        if span.position and seat.logged != span.position:
            before = tuple(self._stored[span.table[: pages_for(span.position)]].reshape(-1)[: span.position].tolist())
        return Texts(tuple(span.tokens.tolist()), before)


def _line(
    source: Source,
    forward: int,
    time_ms: int,
    layout: Sequence[Part],
    texts: Sequence[Texts],
    logits: Float32Array | None,
) -> str:
    """The costly part, on the writer's thread: cells are counted and logits digested."""
    if logits is not None:
        texts, left = list(texts), logits
        for at, part in enumerate(layout):
            digests = tuple(logits_digest(row) for row in left[: part.wanted])
            texts[at] = Texts(texts[at].tokens, texts[at].context, digests)
            left = left[part.wanted :]
    return Record.of(source, forward, time_ms, layout, texts).line()
