"""What the aggregator says of a reader, in the log and as a span."""

from __future__ import annotations

import logging
import sys
import time

from aggregator_svc.assemble import RequestText
from kev.bus.messages import Manifest
from kev.telemetry import traces
from kev.telemetry.logs import Told

log = logging.getLogger(__name__)
_TOLD = Told(log)


class Telling:
    """One reader's stay, from now to ``end``.

    Args:
        name: Of the span; begins with ``aggregator``.
        traceparent: The reader's span; empty takes the one that accepted the request.
    """

    def __init__(self, name: str, manifest: Manifest, traceparent: str) -> None:
        self._name = name
        self._manifest = manifest
        self._began = time.monotonic()
        parent = traceparent or manifest.traceparent
        self._span = traces.begin(name, parent, request_id=manifest.request_id, slots=len(manifest.slots))

    def end(self, text: RequestText | None) -> None:
        """It is over: all was read, or the reader left, or its time was up.

        Args:
            text: The request's; None if it could not be followed.
        """
        left_open = None if text is None else len(text.open_slots)
        traces.end(self._span, sys.exception(), open_slots=left_open)
        _TOLD.say(
            f"{self._name} ended",
            request_id=self._manifest.request_id,
            slots=len(self._manifest.slots),
            open_slots=left_open,
            elapsed_ms=round((time.monotonic() - self._began) * 1000, 1),
        )
