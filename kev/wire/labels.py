"""Labels of metrics that several services must write alike. Pure."""

from __future__ import annotations

MOST_BUCKETS = 64
"""Most values of a label ``bucket``; with more buckets, neighbours share one."""
NO_BUCKET = "none"


def bucket_label(bucket: int, buckets: int) -> str:
    """The label of a hash bucket: its number, or ``first-last`` of the neighbours that share a label.

    Args:
        bucket: ``0 .. buckets - 1``, or -1 for a question without one.
        buckets: ``router.hash_buckets``.
    """
    if not 0 <= bucket < buckets:
        return NO_BUCKET
    if buckets <= MOST_BUCKETS:
        return str(bucket)
    size = -(-buckets // MOST_BUCKETS)
    first = bucket // size * size
    return f"{first}-{min(first + size, buckets) - 1}"
