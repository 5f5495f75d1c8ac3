"""Replies that come at the very moment in which the time for them is up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from nats.aio.msg import Msg

from kev.bus.feed import BusStats
from kev.bus.nats.link import Link
from kev.bus.settings import BusSettings
from kev.domain.errors import BusUnavailable

LIMIT_S = 0.01


class Frozen(Link):
    """Its process is stopped after it has asked; when it goes on, the time is up and a reply is there."""

    fault: Exception | None = None

    def check(self) -> None: ...

    async def listen(self, subject: str, hear: Callable[[Msg], None]) -> Frozen:  # type: ignore[override]
        self.hear = hear
        return self

    async def publish(self, *_: object, **__: object) -> None:
        asyncio.get_running_loop().call_later(LIMIT_S * 1.5, self._reply)
        time.sleep(LIMIT_S * 2)  # noqa: ASYNC251 - the loop stands still

    async def close(self) -> None: ...

    def _reply(self) -> None:
        try:
            self.hear(Msg(self._client))
        except Exception as error:
            self.fault = error


async def test_a_reply_that_comes_as_the_time_runs_out_is_just_late() -> None:
    link = Frozen(BusSettings(request_timeout_s=LIMIT_S), BusStats())
    with pytest.raises(BusUnavailable):
        await link.gather("subject", b"", complete=lambda _: False)
    assert link.fault is None
