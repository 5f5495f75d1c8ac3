"""Checks a log of forwards again: every layout, and the logits where tokens were logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from inference_svc.audit.layout import Part, count_cells, digest_of
from inference_svc.audit.record import NotARecord, Record, Source, record_of

MOST_FAULTS = 20
"""So many are told; all are counted."""


class CannotCheck(ValueError):
    """There is nothing to check; the text says why."""


@dataclass(slots=True)
class Verdict:
    """What a log came to.

    Attributes:
        forwards, rows: Records and their rows.
        own, granted, cross: Cells, counted again.
        faults: The first of them, a line each; ``faulty`` counts all.
        logits_equal, logits_different: Logit rows computed again.
        logits_skipped: Logit rows that cannot be: their context, or the row itself, is not in this file.
    """

    forwards: int = 0
    rows: int = 0
    own: int = 0
    granted: int = 0
    cross: int = 0
    faulty: int = 0
    faults: list[str] = field(default_factory=list)
    logits_equal: int = 0
    logits_different: int = 0
    logits_skipped: int = 0

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return self.faulty == 0

    def fault(self, text: str) -> None:
        """Notes one."""
        self.faulty += 1
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(text)


def records(path: Path) -> Iterator[tuple[int, Record | NotARecord]]:
    """(line number, record) of a file; a last line without an end is what a stopped process leaves, and no record.

    Raises:
        CannotCheck: the file cannot be read.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            for number, line in enumerate(stream, 1):
                if not line.endswith("\n"):
                    return
                try:
                    yield number, record_of(line)
                except NotARecord as error:
                    yield number, error
    except OSError as error:
        raise CannotCheck(f"{path}: cannot be read ({error.strerror})") from None


def check_file(path: Path, replay: Callable[[Record, Verdict], None] | None = None) -> Verdict:
    """Goes through a file.

    Args:
        replay: Computes a record's logits again, and notes in the verdict what it finds.

    Raises:
        CannotCheck: the file cannot be read, or holds no record.
    """
    verdict = Verdict()
    history: dict[tuple[Source, int], Part] = {}
    for number, record in records(path):
        if isinstance(record, NotARecord):
            verdict.fault(f"line {number}: {record}")
            continue
        verdict.forwards += 1
        _check_layout(number, record, verdict)
        _check_history(number, record, history, verdict)
        if replay is not None:
            before = verdict.logits_different
            replay(record, verdict)
            if verdict.logits_different > before:
                rows = verdict.logits_different - before
                verdict.fault(f"line {number}: forward {record.forward}: {rows} logit rows differ from those logged")
    if not verdict.forwards and not verdict.faulty:
        raise CannotCheck(f"{path}: no audit records")
    return verdict


def _check_layout(number: int, record: Record, verdict: Verdict) -> None:
    """Counts the cells again."""
    where = f"line {number}: forward {record.forward}"
    cells = count_cells(record.layout)
    verdict.rows += sum(part.count for part in record.layout)
    verdict.own += cells.own
    verdict.granted += cells.granted
    verdict.cross += cells.cross
    if cells.cross:
        verdict.fault(f"{where}: {cells.cross} cells of another channel are visible")
    if cells != record.cells:
        verdict.fault(f"{where}: the cells do not add up to what was logged")
    if digest_of(record.layout) != record.digest:
        verdict.fault(f"{where}: the layout is not the one that was logged")
    if twice := [channel for channel, count in Counter(part.channel for part in record.layout).items() if count > 1]:
        verdict.fault(f"{where}: channel {twice[0]} has rows twice")


def _check_history(number: int, record: Record, history: dict[tuple[Source, int], Part], verdict: Verdict) -> None:
    """A run goes forward, and the pages that it has stay where they are."""
    for part in record.layout:
        key = record.source, part.run
        before = history.get(key)
        history[key] = part
        if before is None or before.channel != part.channel:
            continue
        where = f"line {number}: forward {record.forward}: channel {part.channel}"
        if part.position < before.end:
            verdict.fault(f"{where}: position {part.position} is computed a second time")
        elif part.pages[: len(before.pages)] != before.pages:
            verdict.fault(f"{where}: its pages are not those that it had before")
