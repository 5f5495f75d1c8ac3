"""Which channels there are: of a running cluster, or those that a configuration gives."""

from __future__ import annotations

from kev.app.top.figures import Reading
from kev.bus.messages import Lane
from kev.config.settings import Settings

_DEPTH = "kev_router_queue_questions"


def configured_lanes(settings: Settings, workers: int) -> list[Lane]:
    """The channels of so many workers, named as ``kev up`` names them; one worker may have a name of its own."""
    names = [f"w{number}" for number in range(1, workers + 1)]
    if workers == 1 and settings.inference.worker_id:
        names = [settings.inference.worker_id]
    return [_lane(settings, name, channel) for name in names for channel in range(settings.router.channel_pool_size)]


def running_lanes(reading: Reading, settings: Settings) -> list[Lane]:
    """The channels that the routers of a reading see; which are for long questions is the configuration's word."""
    lanes = []
    for name in reading.by(_DEPTH, "channel"):
        worker, slash, channel = name.rpartition("/")
        if slash and channel.isdecimal():
            lanes.append(_lane(settings, worker, int(channel)))
    return sorted(lanes)


def _lane(settings: Settings, worker: str, channel: int) -> Lane:
    route = settings.router
    return Lane(worker, channel, long=channel >= route.channel_pool_size - route.long_channels)
