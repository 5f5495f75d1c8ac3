"""Says on stderr how far a run has come."""

from __future__ import annotations

import sys
import time
from collections import Counter
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kev.app.cli.answers import ending
from kev.app.cli.plain import plain
from kev.domain.errors import Overloaded
from kev.domain.result import SlotResult

MOST_NOTES = 5
SILENT_S = 5.0
"""For so long nothing is said of a cluster that has no room."""
SAID_EVERY_S = 60.0


class RunProgress:
    """A bar on a terminal, and in any case a last line with the counts. A context manager."""

    def __init__(self, total: int) -> None:
        console = Console(file=sys.stderr)
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=total)
        self._began = time.monotonic()
        self._tokens = 0
        self._say_at = self._began + SILENT_S
        self._notes: list[str] = []
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def ended(self, result: SlotResult) -> None:
        """A slot has ended."""
        self.counts[result.status] += 1
        self._say_at = max(self._say_at, time.monotonic() + SILENT_S)
        self._tokens += result.tokens
        if not result.ok and len(self._notes) < MOST_NOTES:
            named = f" ({plain(result.id)})" if result.id else ""
            self._notes.append(f"slot {result.slot}{named}: {ending(result)}")
        self._bar.update(self._task, advance=1, description=f"{self._rate():.0f} tokens/s")

    def refused(self, error: Overloaded) -> None:
        """There was no room. Said now and then while nothing ends, so that nobody takes a run that waits for one that
        hangs."""
        if (now := time.monotonic()) >= self._say_at:
            self._say_at = now + SAID_EVERY_S
            self._bar.console.print(f"waiting: {plain(str(error))}", markup=False, highlight=False, soft_wrap=True)

    @property
    def all_answered(self) -> bool:
        """Whether every slot so far was answered."""
        return set(self.counts) <= {"answered"}

    def summary(self) -> str:
        """One line: how many, how they ended, how fast. Before it, the first slots that were not answered, and why."""
        ends = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in sorted(self.counts.items()))
        seconds = time.monotonic() - self._began
        total = f"{self.counts.total()} questions in {seconds:.1f} s: {ends}; {self._rate():.0f} tokens/s"
        return "\n".join([*self._notes, total])

    def _rate(self) -> float:
        return self._tokens / max(time.monotonic() - self._began, 1e-9)
