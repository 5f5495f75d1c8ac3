"""One suite, two buses: every test of this folder runs over memory and over a real nats-server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from bus_labs import Lab, MemoryLab, NatsLab

from kev.bus.memory import MemoryBus
from kev.bus.nats import NatsBus
from kev.bus.nats.server import LocalNats


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNats]:
    with LocalNats(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(params=["memory", "nats"])
async def lab(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    made: Lab = MemoryLab() if request.param == "memory" else NatsLab(request.getfixturevalue("broker").url)
    yield made
    await made.close()


@pytest.fixture
async def bus(lab: Lab) -> MemoryBus | NatsBus:
    return await lab.connect()
