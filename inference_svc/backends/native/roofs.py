"""What this machine could do at best, for benchmarks to hold the forward against."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np

from inference_svc.backends.native.binding import FORMS, PRECISIONS, bind
from inference_svc.backends.native.build import library
from inference_svc.backends.native.variants import choose

_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Roofs:
    """The machine's limits for one precision.

    Attributes:
        bandwidth: Bytes per second that all threads read from memory together.
        operations: Operations per second of all threads together; a
            multiplication and an addition are two.
        nibbles: The same where weights have four bits and rows eight.
        floats: The same in float32, as attention computes in every precision.
    """

    bandwidth: float
    operations: float
    nibbles: float
    floats: float

    def floor(self, read_bytes: float, operations: float, in_floats: float, with_nibbles: float = 0.0) -> float:
        """Seconds that a step cannot be faster than.

        Args:
            read_bytes: What it reads from memory.
            operations: What it multiplies and adds in the precision.
            in_floats: And in float32.
            with_nibbles: And with weights of four bits.
        """
        computes = operations / self.operations + in_floats / self.floats + with_nibbles / self.nibbles
        return max(read_bytes / self.bandwidth, computes)


def measure_roofs(precision: str, threads: int, variant: str | None = None, rounds: int = 5) -> Roofs:
    """The best of ``rounds`` short runs of each kind; about a second."""
    lib = bind(library(choose(variant)))
    data = np.ones(_BYTES // 4, np.float32)
    read = max(lib.kev_roof(-1, threads, data.ctypes.data, data.nbytes) for _ in range(rounds))
    kinds = (PRECISIONS[precision], FORMS["nibbles"], PRECISIONS["fp32"])
    return Roofs(read, *(max(lib.kev_roof(kind, threads, None, 0) for _ in range(rounds)) for kind in kinds))


def instructions_per_second(threads: int, rounds: int = 9) -> float:
    """Of all threads together, the simplest instructions: the median of ``rounds`` runs of a millisecond.

    It falls to about 60 % where a neighbour computes on the other hardware threads of the same cores.
    """
    lib = bind(library(choose(None)))
    found: list[float] = [lib.kev_roof(-2, threads, None, 0) for _ in range(rounds)]
    return median(found)
