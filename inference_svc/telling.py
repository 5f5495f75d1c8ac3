"""What the worker says of a question that has ended, in the log and as spans.

The spans are made afterwards, from the times that the run has anyway: a
forward knows nothing of them.
"""

from __future__ import annotations

import logging

from inference_svc.hands import Held
from inference_svc.outcomes import Now
from inference_svc.report import End
from kev.domain.outcome import Outcome, Status
from kev.telemetry import traces
from kev.telemetry.logs import Told, about

log = logging.getLogger(__name__)
_TOLD = Told(log)


def taken(held: Held) -> None:
    """A question was taken and seated."""
    log.debug("a question was taken", extra=facts_of(held))


def dropped(held: Held) -> None:
    """A question leaves without an outcome of ours."""
    log.debug("a question leaves: %s", held.fate.name.lower(), extra=facts_of(held))


def ended(held: Held, end: End, outcome: Outcome, settling: Now, now: Now) -> None:
    """A question's outcome is stored.

    Args:
        settling: When the writing of it began.
    """
    audit = outcome.audit
    failed = outcome.status is Status.FAILED
    _TOLD.say(
        "a question ended",
        request_id=outcome.request_id,
        slot=outcome.slot,
        channel=audit.channel,
        status=outcome.status.value,
        reason=outcome.reason,
        detail=outcome.detail if failed else "",
        attempt=held.taken.attempt,
        tokens=end.tokens,
        queued_ms=audit.queued_ms,
        elapsed_ms=audit.elapsed_ms,
    )
    if traces.on():
        _spans(held, end, outcome, settling, now)


def facts_of(held: Held) -> dict[str, object]:
    """What a line of the log about a question is about."""
    question = held.question
    return about(
        request_id=question.request_id, slot=question.slot, channel=held.channel_name, attempt=held.taken.attempt
    )


def _spans(held: Held, end: End, outcome: Outcome, settling: Now, now: Now) -> None:
    """Its wait in the queue, and beside it its life here: prompt, answer, settling."""

    def at(monotonic: float) -> int:
        return int(now.wall_ms * 1_000_000 - (now.monotonic - monotonic) * 1e9)

    parent, audit = held.taken.traceparent, outcome.audit
    name = {"request_id": outcome.request_id, "slot": outcome.slot, "worker": audit.worker_id}
    place = {"channel": audit.channel, "bucket": audit.bucket, "branch": audit.branch, "attempt": held.taken.attempt}
    size = {"prompt_tokens": audit.prompt_tokens, "tokens": end.tokens, "forwards": end.forwards}
    traces.past("queue", parent, held.question.accepted_ms * 1_000_000, at(held.began), **name, **place)
    began, over = at(held.began), at(now.monotonic)
    mine = traces.past("question", parent, began, over, status=outcome.status.value, **name, **place, **size)
    if end.started is not None:
        first = end.ended if end.first is None else end.first
        traces.past("prefill", mine, at(end.started), at(first), tokens=audit.prompt_tokens, **name)
        if end.first is not None:
            traces.past("decode", mine, at(first), at(end.ended), tokens=end.tokens, forwards=end.forwards, **name)
    traces.past("settle", mine, at(settling.monotonic), over, **name)
