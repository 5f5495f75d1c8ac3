"""The label of a hash bucket: bounded, whatever the number of buckets."""

from __future__ import annotations

import pytest

from kev.wire.labels import MOST_BUCKETS, bucket_label


def test_few_buckets_have_a_label_each():
    assert [bucket_label(bucket, 64) for bucket in (0, 63)] == ["0", "63"]


def test_neighbours_share_a_label_when_there_are_many():
    assert bucket_label(0, 1024) == "0-15"
    assert bucket_label(15, 1024) == "0-15"
    assert bucket_label(16, 1024) == "16-31"
    assert bucket_label(99, 100) == "98-99"


@pytest.mark.parametrize("bucket", [-1, 64])
def test_a_question_without_a_bucket_says_so(bucket: int):
    assert bucket_label(bucket, 64) == "none"


@pytest.mark.parametrize("buckets", [1, 64, 65, 100, 1000, 65536])
def test_labels_are_never_more_than_the_bound(buckets: int):
    assert len({bucket_label(bucket, buckets) for bucket in range(buckets)}) <= MOST_BUCKETS
