"""What the aggregator counts. Labels are bounded; no request, no tenant."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram

from aggregator_svc.durations import Durations
from aggregator_svc.timing import end_to_end_s
from kev.domain.outcome import Outcome

LADDER = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60)

READERS = Gauge("kev_aggregator_readers", "Streams being followed now.")
REQUESTS = Gauge("kev_aggregator_requests", "Requests that somebody follows or waits for now.")
FRAMES = Counter("kev_aggregator_frames", "Frames given to readers.")
RESETS = Counter("kev_aggregator_resets", "Frames that made a slot start again.")
RESUMES = Counter("kev_aggregator_resumes", "Streams that began at a resume point.")
MERGED = Counter("kev_aggregator_merged_pieces", "Pieces that reached a reader as part of a longer one.")
FELL_BEHIND = Counter("kev_aggregator_fell_behind", "Readers cut off because they read too slowly.")
PLACEHOLDERS = Counter("kev_aggregator_placeholders", "Slots that a reader found timed out without a record.")
CATCH_UPS = Counter("kev_aggregator_catch_ups", "Times the workers were asked for a request's text so far.")
READ_ERRORS = Counter("kev_aggregator_read_errors", "Reads of a followed request that the broker did not answer.")
OUTCOMES = Counter("kev_aggregator_outcomes", "Last frames given to readers.", ["status"])
FIRST_FRAME = Histogram("kev_aggregator_first_frame_seconds", "Start of a stream to its first frame.", buckets=LADDER)
FIRST_TOKEN = Durations(
    "kev_aggregator_first_token_seconds", "Start of following a new request to a slot's first text.", LADDER
)
INTER_TOKEN = Durations(
    "kev_aggregator_inter_token_seconds", "Between two texts of a slot; one text is a token or a few.", LADDER
)
END_TO_END = Histogram(
    "kev_aggregator_end_to_end_seconds", "Acceptance of a question to its end.", ["status"], buckets=LADDER
)


def observe_texts(first: Iterable[float], following: Iterable[float]) -> None:
    """Seconds to first texts, and between texts."""
    FIRST_TOKEN.observe(first)
    INTER_TOKEN.observe(following)


def observe_end(outcome: Outcome) -> None:
    """A slot's outcome was read for the first time by a follower."""
    if (seconds := end_to_end_s(outcome)) is not None:
        END_TO_END.labels(outcome.status.value).observe(seconds)
