"""Two ways with tasks and cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_AGAIN_S = 0.2


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Awaits work that must not stop half-way: a cancel of the caller goes on when the work has ended."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancels a task until it has ended.

    Once is not enough: a cancel that meets a reply inside ``asyncio.wait_for`` is
    swallowed by Python 3.11, and the task goes on.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_AGAIN_S)
