"""``deploy``: where the tiers run."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from kev.config.sections.base import Section, formed

DEVICES_ALLOWED = "must be auto, or cpu and cuda:N with commas between them"


class Mode(StrEnum):
    """Where the tiers run."""

    SINGLE = "single"
    MULTI_GPU = "multi_gpu"
    DISTRIBUTED = "distributed"


class DeploySettings(Section):
    """``deploy``: where the tiers run."""

    mode: Mode = Mode.SINGLE
    """``single``: one process; ``multi_gpu``: local processes; ``distributed``: services over NATS."""
    devices: Annotated[str, formed(r"auto|(cpu|cuda:\d+)(,(cpu|cuda:\d+))*", DEVICES_ALLOWED)] = "auto"
    """Under ``multi_gpu`` a worker for each: ``cuda:0,cuda:1``, or ``cpu,cpu``; ``auto`` takes all GPUs."""
