"""What the router counts: ``kev_router_*``. Labels are bounded: never a request, never a tenant."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

from prometheus_client import Counter, Gauge, Histogram

from kev.bus.messages import Lane
from kev.domain.errors import row_for
from kev.domain.outcome import Branch
from kev.domain.result import Submitted
from kev.wire.labels import MOST_BUCKETS, bucket_label
from router_svc.breaker import State
from router_svc.ring import Ring

LADDER = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Seconds."""

SUBMITS = Counter("kev_router_submits_total", "Submits by how they ended.", ["result"])
PLACED = Counter("kev_router_placed_total", "Questions put into queues, by routing branch.", ["branch"])
REFUSED = Counter("kev_router_refused_total", "Slots refused, by reason.", ["reason"])
CANCELLED = Counter("kev_router_cancelled_total", "Slots that a cancel ended.")
FULL = Counter("kev_router_queue_full_total", "Lanes that the broker refused although this router saw room.")
PREPARE = Histogram("kev_router_prepare_seconds", "Cleaning, rendering and tokenising a batch.", buckets=LADDER)
ENQUEUE = Histogram("kev_router_enqueue_seconds", "One publish of a batch, or of a part of it.", buckets=LADDER)
SUBMIT = Histogram("kev_router_submit_seconds", "A whole submit.", buckets=LADDER)
WAITED = Histogram("kev_router_waited_seconds", "How long a held submit waited for room.", buckets=LADDER)
WAITERS = Gauge("kev_router_waiters", "Submits that wait for room now.")
WAITING = Gauge("kev_router_waiting_questions", "Questions that wait for room now.")
WORKERS = Gauge("kev_router_workers", "Live workers.")
CHANNELS = Gauge("kev_router_channels", "Channels that this router may send to.")
QUEUED = Gauge("kev_router_queued_questions", "Questions in the channels' queues, as this router sees it.")
DRAIN = Gauge("kev_router_drain_per_second", "Questions that leave the queues each second, smoothed.")
QUESTIONS = Counter(
    "kev_router_questions", "Questions put into queues, by hash bucket and routing branch.", ["bucket", "branch"]
)
CHANNEL_QUESTIONS = Counter("kev_router_channel_questions", "Questions put into queues, by channel.", ["channel"])
DEPTH = Gauge("kev_router_queue_questions", "Questions in a channel's queue or a shared lane, now.", ["channel"])
BOUND = Gauge("kev_router_queue_bound_questions", "Most questions in one channel's queue.")
TIMEOUT = Gauge("kev_router_timeout_seconds", "A question's time, where it names none.")
BUCKETS = Gauge("kev_router_hash_buckets", "Hash buckets.")
OLDEST = Gauge("kev_router_oldest_question_seconds", "Age of the oldest question in any queue.")
BREAKER = Gauge(
    "kev_router_breaker_state", "Breakers that are not closed: 1 half-open, 2 open; 0 once closed again.", ["bucket"]
)
HOME = Gauge(
    "kev_router_bucket_home", "1: the channel is the bucket's home, as this router sees it.", ["bucket", "channel"]
)
SAVED_CHARS = Counter(
    "kev_router_saved_characters_total", "Characters of questions that normalisation took out, by rule.", ["rule"]
)
SAVED_TOKENS = Counter("kev_router_saved_tokens_total", "Tokens that the model need not read for it.")

ASTRAY = Counter(
    "kev_router_pre_bucket_timeouts_total", "Texts on which a rule of router.pre_buckets took too long.", ["rule"]
)

_buckets = 64


def configure(hash_buckets: int, queue_bound: int, timeout_s: float) -> None:
    """Settings that labels and alerts need."""
    global _buckets
    _buckets = hash_buckets
    _of_bucket.cache_clear()
    BUCKETS.set(hash_buckets)
    BOUND.set(queue_bound)
    TIMEOUT.set(timeout_s)


def observe_placed(placed: Iterable[tuple[int, Branch, Lane]]) -> None:
    """Questions are in their queues: bucket, branch and place of each."""
    places = tuple(placed)
    for branch, count in Count(branch for _, branch, _ in places).items():
        PLACED.labels(branch.value).inc(count)
    for (bucket, branch), count in Count((bucket, branch) for bucket, branch, _ in places).items():
        _of_bucket(bucket, branch).inc(count)
    for lane, count in Count(lane for _, _, lane in places).items():
        CHANNEL_QUESTIONS.labels(str(lane)).inc(count)


@lru_cache(1 << 12)
def _of_bucket(bucket: int, branch: Branch) -> Counter:
    """The counter of a bucket; looking it up by label costs more than counting."""
    return QUESTIONS.labels(bucket_label(bucket, _buckets), branch.value)


def observe_breakers(states: Mapping[int, State]) -> None:
    """The breakers that are not closed; of buckets with one label, the worst is shown."""
    worst: dict[str, int] = dict.fromkeys(_tripped, 0)
    for bucket, state in states.items():
        label = bucket_label(bucket, _buckets)
        worst[label] = max(worst.get(label, 0), _BREAKER_VALUES[state])
    for label, level in worst.items():
        BREAKER.labels(label).set(level)
        _tripped.add(label)


def observe_homes(ring: Ring) -> None:
    """The homes on a new ring. Where buckets share labels there are too many of them to tell."""
    HOME.clear()
    if ring and _buckets <= MOST_BUCKETS:
        for bucket in range(_buckets):
            HOME.labels(bucket_label(bucket, _buckets), str(ring.home(bucket))).set(1)


_BREAKER_VALUES = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}
_tripped: set[str] = set()
_levels: dict[str, int] = {}
"""Depths as they were told last."""


def observe_depths(depths: Mapping[Lane, int]) -> None:
    """Questions in every lane there is. A lane that is gone loses its series, so that they stay few over the years.

    This is called several times a second, so only what has changed is written.
    """
    names = {str(lane): depth for lane, depth in depths.items()}
    for name in _levels.keys() - names.keys():
        DEPTH.remove(name)
        CHANNEL_QUESTIONS.remove(name)
        del _levels[name]
    for name, depth in names.items():
        if name not in _levels:
            CHANNEL_QUESTIONS.labels(name)
        if _levels.get(name) != depth:
            DEPTH.labels(name).set(depth)
            _levels[name] = depth


def observe_fleet(workers: int, channels: int, queued: int, drain: float) -> None:
    """After each poll."""
    WORKERS.set(workers)
    CHANNELS.set(channels)
    QUEUED.set(queued)
    DRAIN.set(drain)


@contextmanager
def counted_submit() -> Iterator[Callable[[Submitted], None]]:
    """Times a submit and counts how it ended: ``accepted``, ``duplicate``, ``left``, or the error table's reason."""
    result = "left"

    def ended(submitted: Submitted) -> None:
        nonlocal result
        result = "duplicate" if submitted.duplicate else "accepted"

    with SUBMIT.time():
        try:
            yield ended
        except Exception as error:
            result = row_for(error).reason.lower()
            raise
        finally:
            SUBMITS.labels(result).inc()
