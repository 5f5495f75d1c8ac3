"""``isolation`` and ``context``: what questions may share, and the documents that they may read."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from kev.config.sections.base import Section
from kev.domain.question import Isolation


class KvLayout(StrEnum):
    """How channels get their KV pages."""

    SPLIT = "split"
    UNIFIED = "unified"
    SHARED_READONLY = "shared_readonly"


class IsolationSettings(Section):
    """``isolation``: what questions may share, and how memory is laid out."""

    level: Isolation = Isolation.STRICT
    """The weakest level served: what questions may share."""
    shared_prefix: bool = True
    """Whether the deployment's own system prompt is computed once for all."""
    kv_cache: KvLayout = KvLayout.SHARED_READONLY
    """``shared_readonly``: pages as needed, full pages of stored context read by all; ``split``: context is copied
    for each channel, so that no page is in two tables; ``unified``: so, and ``max_context`` reserved per channel."""
    context_pages: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Most KV pages of stored context; 0 lets it take what no question needs."""


class ContextSettings(Section):
    """``context``: context pools, the documents that a tenant's questions may read."""

    max_pools: Annotated[int, Field(ge=0, le=1000)] = 32
    """Most pools of one tenant."""
    max_pool_tokens: Annotated[int, Field(ge=0, le=1_048_576)] = 0
    """Most tokens of one pool; 0 takes what ``core.max_context`` leaves."""
