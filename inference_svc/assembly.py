"""Puts a worker's parts together from the settings."""

from __future__ import annotations

from collections.abc import Callable

from inference_svc.audit.log import Audited, unaudited
from inference_svc.backends.port import Backend
from inference_svc.clock import Clock
from inference_svc.core import Core
from inference_svc.desk import Desk
from inference_svc.memory import Memory, MemoryLimits
from inference_svc.outcomes import Identity
from inference_svc.pages import PageAllocator
from inference_svc.report import Report
from inference_svc.rows import pages_for
from inference_svc.schedule import LEAST_LONG_ROWS, ForwardLimits, Scheduler
from kev.config.settings import KvLayout, Settings
from kev.domain.question import Isolation
from kev.tokens.tokenizer import Tokenizer

LEVELS = (Isolation.STRICT, Isolation.SHARED, Isolation.LOOSE)
"""Strongest first. A deployment serves its own level and all stronger ones."""
SPLIT_SHARE = 4
"""Under ``split`` the store holds a quarter of what all channels could come to need: few are ever full."""

LONG_CHUNK_SHARE, LONG_PAGES_SHARE = 4, 2
"""A long prompt goes in by quarters of the row budget even when nothing else runs, so that whoever comes meanwhile
waits little; and all long runs together hold half of the pages."""
LEAST_PAGES = 32
"""The self-test needs some."""


def kv_pages(settings: Settings) -> int:
    """Pages of the KV store: ``core.kv_pages``, or sized from channels and ``max_context``."""
    if settings.core.kv_pages:
        return settings.core.kv_pages
    one, channels = pages_for(settings.core.max_context), settings.router.channel_pool_size
    if settings.isolation.kv_cache is KvLayout.UNIFIED:
        return max((channels + 1) * one, LEAST_PAGES)
    return max(2 * one, channels * one // SPLIT_SHARE, LEAST_PAGES)


def levels_of(settings: Settings, strict: bool) -> tuple[str, ...]:
    """Isolation levels that this worker serves; ``strict`` only after a passed self-test."""
    served = LEVELS[: LEVELS.index(settings.isolation.level) + 1]
    return tuple(level.value for level in served if strict or level is not Isolation.STRICT)


def identity_of(
    settings: Settings, backend: Backend, tokenizer: Tokenizer, worker_id: str, model_digest: str
) -> Identity:
    """What the worker says of itself, before its self-test."""
    return Identity(
        worker_id=worker_id,
        model_digest=model_digest,
        tokenizer_digest=tokenizer.digest,
        backend=backend.name,
        variant=backend.variant,
        max_context=max_context(settings, backend),
        channels=settings.router.channel_pool_size,
        levels=levels_of(settings, strict=False),
        long_channels=settings.router.long_channels,
    )


def max_context(settings: Settings, backend: Backend) -> int:
    """Most positions of one channel: what was asked for, as far as the model goes."""
    return min(settings.core.max_context, backend.max_context)


def core_of(
    settings: Settings,
    backend: Backend,
    tokenizer: Tokenizer,
    clock: Clock,
    on_report: Callable[[Report], None],
    audited: Audited = unaudited,
) -> Core:
    """The core with its scheduler and memory.

    Args:
        audited: Puts the audit log around the backend.
    """
    memory_limits = MemoryLimits(
        max_context=max_context(settings, backend),
        unified=settings.isolation.kv_cache is KvLayout.UNIFIED,
        share_prefix=settings.isolation.shared_prefix,
        copies=settings.isolation.kv_cache is not KvLayout.SHARED_READONLY,
        context_pages=settings.isolation.context_pages,
    )
    allocator = PageAllocator(backend.pages)
    memory = Memory(allocator, backend.pages, memory_limits)
    forward_limits = ForwardLimits(
        channels=settings.router.max_parallel_queries,
        rows=settings.core.row_budget,
        long_rows=max(LEAST_LONG_ROWS, settings.core.row_budget // LONG_CHUNK_SHARE),
        long_share=settings.core.long_row_share,
        long_pages=backend.pages // LONG_PAGES_SHARE,
    )
    desk = Desk(audited(backend, allocator.view), tokenizer, memory, Scheduler(forward_limits, memory), clock)
    return Core(desk, on_report, clock, settings.core.window_ms / 1000)
