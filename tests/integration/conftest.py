"""The real broker that the tests of a file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kev.bus.nats.server import LocalNats


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNats]:
    """A running nats-server with a store of its own."""
    with LocalNats(tmp_path_factory.mktemp("nats")) as running:
        yield running
