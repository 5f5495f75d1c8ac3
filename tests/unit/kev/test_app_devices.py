"""A worker per device, and clear words where there are none."""

from __future__ import annotations

from typing import Any

import pytest

from kev.app.cluster.devices import worker_devices
from kev.config.load import ConfigError, load_settings
from kev.config.settings import Settings


def settings(**flags: Any) -> Settings:
    return load_settings(flags={"deploy.mode": "multi_gpu", **flags}, environment={})


@pytest.mark.parametrize(
    ("flags", "gpus", "expected"),
    [
        ({}, 2, ["cuda:0", "cuda:1"]),
        ({"deploy_devices": "cuda:1"}, 2, ["cuda:1"]),
        ({"deploy_devices": "cpu,cpu,cpu"}, 0, ["cpu"] * 3),
        ({"core_tensor_parallel": 2}, 4, ["cuda:0", "cuda:2"]),
        ({"core_tensor_parallel": 2, "deploy_devices": "cpu,cpu"}, 0, ["cpu", "cpu"]),
    ],
)
def test_a_worker_for_each(flags: dict[str, Any], gpus: int, expected: list[str]) -> None:
    assert worker_devices(settings(**flags), None, lambda: gpus) == expected


@pytest.mark.parametrize(
    ("flags", "workers", "gpus", "reason"),
    [
        ({}, None, 0, "found no GPU.*cpu,cpu"),
        ({"deploy_devices": "cuda:3"}, None, 2, "cuda:3 is not there; this machine has 2"),
        ({}, 2, 2, "--workers"),
        ({"core_tensor_parallel": 2}, None, 3, "runs of 2"),
        ({"core_tensor_parallel": 2, "deploy_devices": "cuda:0,cuda:2"}, None, 3, "runs of 2"),
    ],
)
def test_what_is_not_there_is_said(flags: dict[str, Any], workers: int | None, gpus: int, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        worker_devices(settings(**flags), workers, lambda: gpus)


def test_other_modes_count_no_gpus() -> None:
    def count() -> int:
        raise AssertionError

    assert worker_devices(Settings(), 3, count) == ["cpu"] * 3
    assert worker_devices(Settings(), None, count) == ["cpu"]


@pytest.mark.parametrize("text", ["gpu", "cpu,", "cuda", "cuda:x", ""])
def test_bad_lists_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"deploy\.devices"):
        settings(deploy_devices=text)
