"""The aggregator of a test, closed at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from memory_desk import Desk


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    yield made
    await made.aggregator.close()
