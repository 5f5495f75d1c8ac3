"""What the router says of a submit, in the log and as a span."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from kev.domain.errors import KevError, row_for
from kev.domain.result import Submitted
from kev.telemetry import traces
from kev.telemetry.logs import Told, all_about

log = logging.getLogger(__name__)
_TOLD = Told(log)


class Submitting:
    """One submit on its way: the span is current, and lines name the request, until it has ended."""

    def __init__(self, span: traces.Span, stack: ExitStack) -> None:
        self._span = span
        self._stack = stack
        self._began = time.monotonic()

    def named(self, request_id: str) -> None:
        """Its request id has been checked."""
        self._stack.enter_context(all_about(request_id=request_id))
        traces.note(self._span, request_id=request_id)

    def taken(self, submitted: Submitted) -> None:
        """All its questions are queued, or refused."""
        facts = {"slots": submitted.slots, "refused": len(submitted.refused_slots), "duplicate": submitted.duplicate}
        traces.note(self._span, **facts)
        _TOLD.say("a request was taken", **facts, elapsed_ms=self._elapsed_ms())

    def not_taken(self, error: KevError) -> None:
        """It was refused as a whole."""
        _TOLD.say("a request was not taken", reason=row_for(error).reason, elapsed_ms=self._elapsed_ms())

    def _elapsed_ms(self) -> float:
        return round((time.monotonic() - self._began) * 1000, 1)


@contextmanager
def submitting() -> Iterator[Submitting]:
    """Around one submit."""
    with ExitStack() as stack:
        made = Submitting(stack.enter_context(traces.span("router submit")), stack)
        try:
            yield made
        except KevError as error:
            made.not_taken(error)
            raise
