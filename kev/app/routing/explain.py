"""Why a slot went where it went, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kev.domain.outcome import Branch
from kev.domain.result import PENDING, SlotResult

_BRANCHES = {
    Branch.HOME: "went home",
    Branch.SPILL_RING: "spilt along the ring",
    Branch.SPILL_LEAST: "spilt to the emptier of two channels",
    Branch.OVERFLOW: "took the overflow lane",
    Branch.EXPRESS: "took the express lane",
    Branch.BACKGROUND: "took the background lane",
    Branch.ADOPTED: "was adopted from a worker that is gone",
}


def sentences(result: SlotResult) -> Iterator[str]:
    """What happened to a slot, in order."""
    audit = result.audit
    if result.status == PENDING:
        yield "has no outcome yet; what a worker does with it is told at its end"
        return
    if audit.branch:
        yield f"{_bucket(result)}; {_BRANCHES.get(Branch(audit.branch), audit.branch)}"
    if audit.placement:
        yield f"because: {audit.placement}"
    if audit.channel:
        again = f", taken {audit.attempts} times" if audit.attempts > 1 else ""
        yield f"waited {_time(audit.queued_ms)}, then ran on {audit.channel} of worker {audit.worker_id}{again}"
        shared = f", {audit.shared_tokens} of them shared" if audit.shared_tokens else ""
        yield (
            f"{_time(audit.elapsed_ms)} in {audit.forwards} forwards: {audit.prompt_tokens} tokens of prompt{shared}, "
            f"{audit.completion_tokens} of answer"
        )
    else:
        yield "no channel ran it"
    why = ": ".join(part for part in (result.reason, result.detail) if part)
    yield f"ended {result.status.replace('_', ' ')} ({result.finish_reason})" + (f": {why}" if why else "")
    yield from result.warnings


def record(result: SlotResult) -> dict[str, Any]:
    """The same for programs: everything but the text."""
    told: dict[str, Any] = {
        "request_id": result.request_id,
        "slot": result.slot,
        "id": result.id,
        "status": result.status,
        "finish_reason": result.finish_reason,
        "reason": result.reason,
        "detail": result.detail,
    }
    return {**told, **msgspec.structs.asdict(result.audit), "why": list(sentences(result))}


def _bucket(result: SlotResult) -> str:
    audit = result.audit
    strategy = audit.strategy or "the strategy"
    if audit.bucket < 0:
        return f"{strategy} gave it no bucket"
    home = f", whose home was {audit.home}" if audit.home else ""
    return f"{strategy} gave it bucket {audit.bucket}{home}"


def _time(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.2f} s"
