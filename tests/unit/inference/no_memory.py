"""A process with little memory: a pack that finds none is refused, and computed when there is some.

Run as ``python no_memory.py MODEL``; see ``test_native_pages.py``.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from inference_models import tokens_of
from native_support import load

from inference_svc.rows import Pack, Span
from inference_svc.verify.report import same_bits

INTERMEDIATE = 16384
"""Of the model: a row's largest buffer."""


def main(model: Path) -> None:
    """Computes four spans alone, then together without memory, then together with it."""
    backend = load(model, "fp32", pages=128, threads=1)
    tokens = np.array(tokens_of(1, 500), np.int32)
    spans = [Span(n, tokens, 0, np.arange(32 * n, 32 * n + 32, dtype=np.int32)) for n in range(4)]
    alone = [backend.forward(Pack.of([span])).copy() for span in spans]
    with _memory_left(16 << 20), pytest.raises(MemoryError, match="for this pack"):
        backend.forward(Pack.of(spans))
    before = _size()
    assert same_bits(backend.forward(Pack.of(spans)), np.concatenate(alone))
    # What is written past a buffer need not be seen in any bit: it must have grown.
    assert _size() - before > 1500 * INTERMEDIATE * 4
    print("refused, then equal")


@contextmanager
def _memory_left(size: int) -> Iterator[None]:
    """The process gets about so many bytes more, and no others."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_size() + size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _size() -> int:
    """Bytes of this process's memory."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
