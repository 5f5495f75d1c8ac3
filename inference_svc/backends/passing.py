"""A backend around another one: what it does not do itself, it passes on."""

from __future__ import annotations

from collections.abc import Sequence

from inference_svc.backends.port import Backend
from inference_svc.rows import Float32Array, Pack


class PassingBackend:
    """Passes everything on as it is; see ``Backend``. ``close`` does nothing: the inner one stays its owner's.

    Args:
        variant: Its name, where bit-equality with the inner one's variant is not promised.
    """

    def __init__(self, inner: Backend, variant: str = "") -> None:
        self._inner = inner
        self.name, self.variant = inner.name, variant or inner.variant
        self.vocab_size, self.max_context, self.pages = inner.vocab_size, inner.max_context, inner.pages

    def forward(self, pack: Pack) -> Float32Array:
        """See ``Backend.forward``."""
        return self._inner.forward(pack)

    def scrub(self, pages: Sequence[int]) -> None:
        """See ``Backend.scrub``."""
        self._inner.scrub(pages)

    def copy_page(self, source: int, target: int) -> None:
        """See ``Backend.copy_page``."""
        self._inner.copy_page(source, target)

    def close(self) -> None:
        """Nothing."""
