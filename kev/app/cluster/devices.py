"""Which device each worker of a local cluster gets: pure."""

from __future__ import annotations

from collections.abc import Callable

from kev.config.load import ConfigError
from kev.config.settings import Mode, Settings


def worker_devices(settings: Settings, workers: int | None, gpus: Callable[[], int]) -> list[str]:
    """``core.device`` of every worker.

    Args:
        workers: As asked for on the command line; None if not.
        gpus: Counts this machine's GPUs; called only if that matters.

    Raises:
        ConfigError: there are not the devices that were asked for.
    """
    if settings.deploy.mode is not Mode.MULTI_GPU:
        return [settings.core.device] * (workers or 1)
    if workers is not None:
        raise ConfigError("--workers: deploy.mode multi_gpu starts a worker per device; name them in deploy.devices")
    named = _named(settings, gpus)
    share = settings.core.tensor_parallel
    if share == 1 or named[0] == "cpu":
        return named
    firsts = named[::share]
    if len(named) % share or any(group != _run(group[0], share) for group in _groups(named, share)):
        raise ConfigError(
            f"deploy.devices: with core.tensor_parallel {share} GPUs go in runs of {share}, got {', '.join(named)}"
        )
    return firsts


def _named(settings: Settings, gpus: Callable[[], int]) -> list[str]:
    if settings.deploy.devices != "auto":
        named = settings.deploy.devices.split(",")
        highest = max((int(name.partition(":")[2]) for name in named if name != "cpu"), default=-1)
        if highest >= 0 and highest >= (count := gpus()):
            raise ConfigError(f"deploy.devices: cuda:{highest} is not there; this machine has {count} GPUs")
        return named
    count = gpus()
    if not count:
        raise ConfigError(
            "deploy.devices: auto found no GPU on this machine; name devices, e.g. cpu,cpu for two workers on the CPU"
        )
    return [f"cuda:{number}" for number in range(count)]


def _groups(named: list[str], share: int) -> list[list[str]]:
    return [named[start : start + share] for start in range(0, len(named), share)]


def _run(first: str, share: int) -> list[str]:
    """``cuda:2`` and so many that follow it."""
    kind, _, number = first.partition(":")
    return [f"{kind}:{int(number) + step}" for step in range(share)] if number else []


def count_gpus() -> int:
    """This machine's GPUs that torch can use."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0
