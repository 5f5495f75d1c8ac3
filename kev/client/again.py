"""When a client calls again: a call that was refused for now, a stream or a wait that was cut off."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from kev.domain.errors import BusUnavailable, Overloaded
from kev.wire.status import error_from

MAX_RESUMES = 12
"""Failures in a row, with no frame in between, after which a stream or a wait gives up: 14 to 20 seconds. So long, a
service that is the only one of its kind may take to drain and to start again."""
SOME_RESUMES = 4
"""The same for who has no time left to wait: a second or two."""
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED, grpc.StatusCode.CANCELLED)


async def retried(call: Callable[[], Awaitable[Any]], retries: int) -> Any:
    """The reply of a call that may be tried again so often.

    Raises:
        KevError: as the service answered.
    """
    for tries in itertools.count():
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            await before_retry(error, tries, retries)
    raise AssertionError("unreachable")


async def before_retry(error: grpc.aio.AioRpcError, tries: int, retries: int) -> None:
    """Waits as long as the service asks for; raises when there is no retry left, or it would not help."""
    known = error_from(error)
    if tries >= retries or not isinstance(known, Overloaded | BusUnavailable):
        raise known from None
    named_s = known.retry_after_ms / 1000 if isinstance(known, Overloaded) else 0.0
    await asyncio.sleep(max(named_s, 0.1) * random.uniform(1.0, 1.5))


async def before_resume(error: grpc.aio.AioRpcError, failures: int, hurried: bool = False) -> None:
    """Waits a little longer each time; raises when resuming would not help, or enough was tried."""
    if error.code() not in _LOST or failures > (SOME_RESUMES if hurried else MAX_RESUMES):
        raise error_from(error) from None
    await asyncio.sleep(min(2.0, 0.1 * 2 ** (failures - 1)) * random.uniform(0.8, 1.2))
