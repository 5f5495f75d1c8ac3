"""What an answer asks of its constraint."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Ids: TypeAlias = npt.NDArray[np.intp]


class GrammarFailed(Exception):
    """The constraint cannot be followed any further; the text may be shown."""


class Unusable(Exception):
    """A constraint that cannot be served.

    Attributes:
        reason: As in an outcome: ``invalid``, ``too_complex`` or ``not_served``.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Grammar(Protocol):
    """One answer's constraint and how far the answer is. Used by one thread at a time."""

    def allowed(self) -> Ids:
        """The token ids that may come next, ascending, at least one; end tokens where the answer may end.

        Raises:
            GrammarFailed: it cannot be said within the limits.
        """

    def take(self, token: int) -> bool:
        """Takes note of the next token; whether nothing can come after it.

        Raises:
            GrammarFailed: the token was not allowed.
        """
