"""One local cluster for all end-to-end tests that leave it as they found it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from cluster_lab import SMALL, Process, kev_process, sets


@dataclass(frozen=True)
class Up:
    """A running `kev up`."""

    process: Process
    router: str
    aggregator: str


@pytest.fixture(scope="session")
def up(default_model: object) -> Iterator[Up]:
    """`kev up` with two workers on free ports."""
    arguments = ["up", "--workers", "2", "--free-ports", *sets({**SMALL, "bus.ack_wait_ms": "8000"})]
    with kev_process(*arguments) as process:
        facts = process.ready()
        yield Up(process, facts["router"], facts["aggregator"])
