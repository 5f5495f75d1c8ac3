"""What the aggregator counts. Labels are bounded; no request, no tenant."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

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
