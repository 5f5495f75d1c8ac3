"""The ring of channels: every bucket has a home, and a walking order from there. Pure.

Each channel owns many points of a circle of 64-bit positions (virtual nodes);
a bucket lives at one position, its home is the owner of the next point. All
routers compute the same ring from the same members, and a channel that joins
or leaves moves only the buckets of its own arcs: about 1/n.
"""

from __future__ import annotations

import bisect
import hashlib
import struct
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from kev.bus.messages import Lane

_POINTS_PER_HASH = 8


def stable_hash(text: str) -> int:
    """A 64-bit hash that is the same in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


class Ring:
    """An immutable ring.

    Args:
        members: The channels; order does not matter, doubles count once.
        virtual_nodes: Points per channel; more of them even out the arcs.
    """

    def __init__(self, members: Iterable[Lane] = (), virtual_nodes: int = 64) -> None:
        # Sorted by channel first: a rotation over them then alternates between the workers.
        self.members = tuple(sorted(set(members), key=lambda lane: (lane.channel, lane.source)))
        points = [point for lane in self.members for point in _points(lane, virtual_nodes)]
        owners = np.repeat(np.arange(len(self.members)), virtual_nodes)
        # Two equal points are as good as impossible; the order by members settles even that.
        order = np.argsort(np.array(points, dtype=np.uint64), kind="stable")
        self._positions: list[int] = np.array(points, dtype=np.uint64)[order].tolist()
        self._owners: list[int] = owners[order].tolist()
        self._near: dict[tuple[int, int], tuple[Lane, ...]] = {}

    def __len__(self) -> int:
        return len(self.members)

    def home(self, bucket: int) -> Lane:
        """The bucket's channel while nothing is overloaded.

        Raises:
            LookupError: the ring is empty.
        """
        if not self.members:
            raise LookupError("the ring has no channels")
        return self.near(bucket, 1)[0]

    def near(self, bucket: int, count: int) -> tuple[Lane, ...]:
        """The first ``count`` channels of the bucket's walk. Kept, because buckets come again and again."""
        lanes = self._near.get((bucket, count))
        if lanes is None:
            lanes = self._near[bucket, count] = tuple(islice(self.walk(bucket), count))
        return lanes

    def walk(self, bucket: int) -> Iterator[Lane]:
        """All channels, each once, in the order in which the bucket spills: home first."""
        if not self.members:
            return
        start, size, met = self._index(bucket), len(self._owners), set[int]()
        for step in range(size):
            owner = self._owners[(start + step) % size]
            if owner not in met:
                met.add(owner)
                yield self.members[owner]

    def _index(self, bucket: int) -> int:
        """Index of the first point at or after the bucket's position."""
        return bisect.bisect_left(self._positions, stable_hash(f"bucket {bucket}")) % len(self._positions)


def _points(lane: Lane, count: int) -> list[int]:
    points: list[int] = []
    for part in range(-(-count // _POINTS_PER_HASH)):
        digest = hashlib.blake2b(f"{lane.source}/{lane.channel} {part}".encode()).digest()
        points.extend(struct.unpack("<8Q", digest))
    return points[:count]
