"""What all tests share: the default model, a clean environment, and the `slow` switch."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from kev.config.load import SECTIONS
from kev.config.source import from_environment
from kev.tokens.model_files import INSTALL_DEFAULT, ModelNotFound, default_model_path

ROOT = Path(__file__).resolve().parent.parent

# No property fails because the machine is busy.
settings.register_profile("kev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kev")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--run-slow"):
        return
    skip = pytest.mark.skip(reason="long form: make test-long")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


def pytest_configure(config: pytest.Config) -> None:
    """A deployment's own settings must not change what the tests see."""
    for variable in list(from_environment(os.environ)):
        if variable.section in SECTIONS:
            del os.environ[variable.name]
    # What a script starts in its background ignores Ctrl-C, and so would all programs that the tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model's file; a test that needs it is skipped where it is not installed."""
    try:
        return default_model_path()
    except ModelNotFound:
        pytest.skip(f"the default model is not installed: {INSTALL_DEFAULT}")
