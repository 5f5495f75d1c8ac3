"""A router over the memory bus, with the default model's tokenizer and a fleet that does not answer."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from router_lab import lease, settings_with

from kev.bus.memory import MemoryBus
from kev.bus.settings import BusSettings
from kev.tokens.model_files import resolve_model
from kev.tokens.tokenizer import Tokenizer
from router_svc.router import Router


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(resolve_model("default"))


Start = Callable[..., Any]


@pytest.fixture
async def start(tokenizer: Tokenizer) -> AsyncIterator[Start]:
    """Starts routers; ``await start(bus, **settings)``."""
    running: list[Router] = []

    async def make(bus: Any, *, clock: Callable[[], int] | None = None, **flags: Any) -> Router:
        flags = {"bus__queue_bound": 3, "aggregator__timeout_ms": 20_000, **flags}
        more = {} if clock is None else {"clock": clock}
        router = Router(bus, settings_with(**flags), tokenizer, rng=random.Random(1), poll_s=0.05, hurry_s=0.01, **more)
        await router.start()
        running.append(router)
        return router

    yield make
    for router in running:
        await router.close()


@pytest.fixture
async def bus(tokenizer: Tokenizer) -> AsyncIterator[MemoryBus]:
    """A memory bus with one worker of two channels, three questions each."""
    memory = MemoryBus(BusSettings(queue_bound=3, lease_s=3600))
    await memory.announce(lease(tokenizer))
    yield memory
    await memory.close()
