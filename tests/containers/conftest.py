"""Tests of the images and of the compose deployment. They run where a container engine answers."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from compose_stack import BUILD_S, Stack, compose_command, engine_answers


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "containers: needs a container engine; run with `make compose-test`")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test waits for the images to be built."""
    for item in items:
        if "containers" in item.keywords and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(BUILD_S + 300))


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The deployment, built and started; taken down at the end."""
    if not engine_answers():
        pytest.skip("no container engine answers here (docker info)")
    if compose_command() is None:
        pytest.skip("neither `docker compose` nor `docker-compose` is installed")
    made = Stack("kev-test")
    made.down()
    if "KEV_TEST_NO_BUILD" not in os.environ:  # set it to test images that are there already
        made.compose("build", timeout_s=BUILD_S)
    try:
        made.up()
        yield made
    finally:
        made.down()
