"""Outcomes with how they came about, as a table for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from kev.app.cli.plain import plain
from kev.domain.result import SlotResult

COLUMNS = (
    ("slot", "right"),
    ("id", "left"),
    ("status", "left"),
    ("finish", "left"),
    ("channel", "left"),
    ("bucket", "right"),
    ("branch", "left"),
    ("queued\nms", "right"),
    ("elapsed\nms", "right"),
    ("prompt\ntokens", "right"),
    ("answer\ntokens", "right"),
    ("attempts", "right"),
)


def audit_table(results: Sequence[SlotResult]) -> Table:
    """One row a slot."""
    table = Table(title="Audit", box=SIMPLE, padding=(0, 1))
    for name, side in COLUMNS:
        table.add_column(name, justify="right" if side == "right" else "left", no_wrap=True, vertical="bottom")
    for result in results:
        table.add_row(*(Text(cell) for cell in _cells(result)))
    return table


def _cells(result: SlotResult) -> tuple[str, ...]:
    audit = result.audit
    return (
        str(result.slot),
        plain(result.id),
        result.status,
        result.finish_reason,
        audit.channel or "-",
        str(audit.bucket) if audit.bucket >= 0 else "-",
        audit.branch or "-",
        f"{audit.queued_ms:.0f}",
        f"{audit.elapsed_ms:.0f}",
        str(audit.prompt_tokens),
        str(audit.completion_tokens),
        str(audit.attempts),
    )
