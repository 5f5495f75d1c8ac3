"""What a batch's questions read besides themselves. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kev.bus.messages import PoolInfo
from kev.domain.question import Question
from kev.tokens.chat import Lead
from router_svc.admission import Refusal


@dataclass(frozen=True, slots=True)
class Around:
    """What a batch's questions may read besides themselves.

    Attributes:
        pools: Context pools by name, as far as questions name them; or why one cannot be read.
        prefix: Ids of the batch's prefix, where no pool stands before it.
        prefix_behind_pool: The same, where one does.
    """

    pools: Mapping[str, PoolInfo | Refusal] = field(default_factory=dict)
    prefix: tuple[int, ...] = ()
    prefix_behind_pool: tuple[int, ...] = ()

    def of(self, question: Question) -> tuple[PoolInfo | None, Lead] | Refusal:
        """The question's pool, and what stands before it."""
        if not question.context_pool:
            return None, Lead(False, self.prefix)
        pool = self.pools.get(question.context_pool) or no_pool(question.context_pool)
        return pool if isinstance(pool, Refusal) else (pool, Lead(True, self.prefix_behind_pool))


ALONE = Around()
"""Nothing."""


def no_pool(name: str) -> Refusal:
    """Why a question cannot read a pool that is not there, or is another tenant's."""
    return Refusal("context_pool", f"there is no context pool {name!r}; it may have expired")
