"""What a run leaves behind: the result file, and the audit file."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from kev.domain.result import SlotResult


def result_line(result: SlotResult) -> str:
    """A line of the result file: only what does not vary from run to run."""
    return _line(
        {
            "slot": result.slot,
            "id": result.id,
            "status": result.status,
            "finish_reason": result.finish_reason,
            "text": result.text,
            "reason": result.reason,
            "prompt_tokens": result.audit.prompt_tokens,
            "completion_tokens": result.audit.completion_tokens,
            "warnings": result.warnings,
        }
    )


def audit_line(result: SlotResult) -> str:
    """A line of the audit file: everything, with channel, times and attempts."""
    return _line(msgspec.to_builtins(result))


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"
