"""One intent makes nine tenths of the traffic: does ``semantic_hash`` bury its home?

    python -m bench.hot_intent [--seconds 60] [--tokens 16] [--share 0.9] [--out hot_intent.json]

Real processes, the real model, two workers. Three deployments take turns in one run, on the same questions:
``semantic_hash`` as it is, ``semantic_hash`` without bound and breaker, and ``round_robin``. Each is offered more than
it can answer: ``--clients`` clients ask batch after batch. Per deployment: answers a second, and the load over the
channels, max / mean: of the questions that each was sent, and of the depths of their queues as looked at ten times a
second. Prints one JSON line each, then the shares.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import EXAMPLES
from kev.app.batchfile.read import read_labelled
from kev.app.cluster.cluster import Addresses, Cluster
from kev.bus.nats import NatsBus
from kev.client import AsyncClient
from kev.config.load import load_settings
from kev.config.settings import Settings
from kev.wire.bus_settings import bus_settings

HOT = "How do I get a refund for order {}?"
OFF = {"router.load_factor": "100", "router.breaker_depth": "0"}
WAYS: dict[str, dict[str, str]] = {
    "semantic_hash": {"router.strategy": "semantic_hash"},
    "semantic_hash, no bound, no breaker": {"router.strategy": "semantic_hash", **OFF},
    "round_robin": {"router.strategy": "round_robin"},
}


@dataclass(slots=True)
class Figures:
    """One deployment's."""

    seconds: float = 0.0
    answers: int = 0
    failed: int = 0
    sent: Counter[str] = field(default_factory=Counter)
    branches: Counter[str] = field(default_factory=Counter)
    imbalances: list[float] = field(default_factory=list)

    def told(self, channels: int) -> dict[str, Any]:
        """For the output."""
        mean = sum(self.sent.values()) / channels
        return {
            "answers_per_second": round(self.answers / self.seconds, 2) if self.seconds else 0.0,
            "failed": self.failed,
            "sent_max_over_mean": round(max(self.sent.values(), default=0) / mean, 2) if mean else 0.0,
            "depth_max_over_mean": round(float(np.mean(self.imbalances)), 2) if self.imbalances else 0.0,
            "branches": dict(self.branches),
        }


class Deployment:
    """A cluster of its own, offered questions in rounds."""

    def __init__(self, at: Addresses, bus: NatsBus, args: argparse.Namespace) -> None:
        self.figures = Figures()
        self._client = AsyncClient(at.router)
        self._bus, self._args = bus, args
        self._channels = args.workers * args.channels

    async def round(self, seconds: float, *, counted: bool = True) -> None:
        """Some seconds of more than it can answer; the same questions for every deployment."""
        figures = self.figures if counted else Figures()
        began = time.monotonic()
        looking = asyncio.create_task(self._look(figures))
        numbers, rng = count(), random.Random(7)
        try:
            await asyncio.gather(
                *(self._ask(figures, began + seconds, numbers, rng) for _ in range(self._args.clients))
            )
        finally:
            looking.cancel()
        figures.seconds += time.monotonic() - began

    async def close(self) -> None:
        """Ends the connection."""
        await self._client.close()

    async def _ask(self, figures: Figures, until: float, numbers: Any, rng: random.Random) -> None:
        while time.monotonic() < until:
            texts = [self._question(next(numbers), rng) for _ in range(self._args.batch)]
            rid = await self._client.submit(texts, max_tokens=self._args.tokens, timeout_ms=120_000)
            for result in await self._client.wait(rid):
                figures.answers += result.ok
                figures.failed += not result.ok
                figures.branches[result.audit.branch] += 1
                figures.sent[_target(result.audit.home, result.audit.placement, result.audit.channel)] += 1

    def _question(self, number: int, rng: random.Random) -> str:
        if rng.random() < self._args.share:
            return HOT.format(number)
        return rng.choice(self._args.texts) + f" ({number})"

    async def _look(self, figures: Figures) -> None:
        while True:
            depths = [depth for lane, depth in (await self._bus.depths()).items() if not lane.shared]
            if sum(depths) >= self._channels:
                figures.imbalances.append(max(depths) * self._channels / sum(depths))
            await asyncio.sleep(0.1)


def _target(home: str, placement: str, channel: str) -> str:
    """The channel that the router chose, as its sentence names it; without a bucket, the one that ran it."""
    if placement.startswith("home ") and ";" not in placement:
        return home
    words = placement.rpartition(";")[2].split()
    return words[0] if words and "/" in words[0] else channel


async def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    """All deployments, in turns."""
    async with AsyncExitStack() as stack:
        deployments: dict[str, Deployment] = {}
        for name, way in WAYS.items():
            flags = flags_of(args, way)
            settings = load_settings(flags=flags, environment={})
            cluster = Cluster(settings, workers=args.workers, flags=flags, free_ports=True, say=lambda *_: None)
            at = await stack.enter_async_context(cluster)
            bus = await NatsBus.connect(bus_settings(_at(settings, at), "bench"))
            stack.push_async_callback(bus.close)
            deployments[name] = Deployment(at, bus, args)
            stack.push_async_callback(deployments[name].close)
        for deployment in deployments.values():
            await deployment.round(args.seconds / 10, counted=False)  # until the queues are full
        for _ in range(args.rounds):
            for deployment in deployments.values():
                await deployment.round(args.seconds / args.rounds)
        channels = args.workers * args.channels
        return [{"way": name, **deployment.figures.told(channels)} for name, deployment in deployments.items()]


def flags_of(args: argparse.Namespace, way: dict[str, str]) -> dict[str, str]:
    """A deployment's settings."""
    return {
        "core.precision": args.precision,
        "core.threads": "1",
        "core.max_context": "512",
        "router.channel_pool_size": str(args.channels),
        "router.max_parallel_queries": str(args.channels),
        "aggregator.timeout_ms": "120000",
        **way,
    }


def _at(settings: Settings, at: Addresses) -> Settings:
    return settings.model_copy(update={"bus": settings.bus.model_copy(update={"url": at.nats})})


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each deployment, all rounds together")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.9, help="of the hot intent")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--channels", type=int, default=8, help="of each worker")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--batch", type=int, default=16, help="questions of one submit")
    parser.add_argument("--tokens", type=int, default=16, help="most tokens of an answer")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--file", type=Path, default=EXAMPLES, help="the other questions")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    args.texts = [one.text for one in read_labelled(str(args.file))]
    found = asyncio.run(run(args))
    for line in found:
        print(json.dumps(line), flush=True)
    rate = {line["way"]: line["answers_per_second"] for line in found}
    share = {way: round(rate[way] / rate["round_robin"], 3) for way in WAYS if rate["round_robin"]}
    print(json.dumps({"throughput_of_round_robin": share}))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
