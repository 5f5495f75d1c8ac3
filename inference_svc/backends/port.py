"""The backend port: the one function that every backend computes.

A backend holds a model's weights in one precision and one KV store of
``pages`` pages. ``forward`` is a pure function of a row's own context: the
result of a row must not depend, bit for bit, on any other row of the pack, on
how its context was cut into forwards, nor on which page ids hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from inference_svc.rows import Float32Array, Pack


class Backend(Protocol):
    """One loaded model with its KV store. Used from one thread only."""

    @property
    def name(self) -> str:
        """``reference`` or ``native``."""

    @property
    def variant(self) -> str:
        """What bit-equality is promised for, e.g. ``torch-cpu-fp32`` or ``avx2-int8``."""

    @property
    def vocab_size(self) -> int:
        """Length of a logit row."""

    @property
    def max_context(self) -> int:
        """Most positions one channel can hold, context and answer together."""

    @property
    def pages(self) -> int:
        """Pages in the KV store; page ids are ``0 .. pages - 1``."""

    def forward(self, pack: Pack) -> Float32Array:
        """Runs the pack, writes K and V of every row into its page.

        Returns:
            Logits, float32 ``[wanted, vocab_size]``, in the order of
            ``pack.wanted_rows()``. The array is the caller's to keep.
            Non-finite values are returned as they are: the caller fails
            that channel.

        Raises:
            ValueError: a token, position or page id is out of range; nothing
                was computed or written.
        """

    def scrub(self, pages: Sequence[int]) -> None:
        """Zeroes K and V of these pages in every layer."""

    def copy_page(self, source: int, target: int) -> None:
        """Copies K and V of one page in every layer (a partial prefix tail)."""

    def close(self) -> None:
        """Frees memory and threads. The backend is not used afterwards."""
