"""What the routing policies do at sizes this machine cannot run: a discrete-event simulation of the real objects.

The same ``Assigner`` (ring, loads, bound, breaker) that the router runs decides every placement. Workers are
modelled as the real ones are: each channel has a bounded queue, and any free channel of a worker takes the
oldest question of the worker's queues. Every router has its own view, polled at its own moments.

    python bench/router_sim.py --channels 1024 --questions 300000 --keys zipf:1.2:1000000
    python bench/router_sim.py --channels 10000 --routers 16 --poll-s 1 --keys hot:0.9
    python bench/router_sim.py --channels 512 --lose-at 20 --join-at 40

It prints one JSON object: imbalance, waits, branches, share of buckets moved.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import random
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kev.bus.messages import Lane
from kev.domain.question import Priority
from router_svc.assign import NO_BUCKET, Assigner
from router_svc.breaker import BreakerLimits
from router_svc.ring import stable_hash

SAMPLES = 200
"""Looks at the true queues during a run."""


@dataclass
class Worker:
    """Channels that take the oldest question of their worker's queues."""

    name: str
    channels: int
    busy: int = 0
    queue: deque[tuple[float, Lane]] = field(default_factory=deque)


class Keys:
    """Draws buckets. ``uniform``, ``zipf:EXPONENT:KEYS`` or ``hot:SHARE``; ``none`` for round robin."""

    def __init__(self, text: str, buckets: int, rng: random.Random) -> None:
        kind, *more = text.split(":")
        self._buckets, self._rng, self._kind = buckets, rng, kind
        if kind == "zipf":
            ranks = np.arange(1, int(more[1]) + 1, dtype=np.float64)
            self._edges = np.cumsum(ranks ** -float(more[0]))
            self._edges /= self._edges[-1]
        elif kind == "hot":
            self._share = float(more[0])
        elif kind not in ("uniform", "none"):
            raise SystemExit(f"--keys {text}: must be uniform, zipf:EXPONENT:KEYS, hot:SHARE or none")

    def draw(self) -> int:
        """One question's bucket."""
        if self._kind == "none":
            return NO_BUCKET
        if self._kind == "zipf":
            key = int(np.searchsorted(self._edges, self._rng.random()))
            return stable_hash(f"key {key}") % self._buckets
        if self._kind == "hot" and self._rng.random() < self._share:
            return 0
        return self._rng.randrange(self._buckets)


class Simulation:
    """One run. Times are seconds; service times are exponential with mean 1."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rng = random.Random(options.seed)
        self.keys = Keys(options.keys, options.buckets, self.rng)
        size = options.channels_per_worker
        self.workers = {f"w{n}": Worker(f"w{n}", size) for n in range(-(-options.channels // size))}
        self.depths: Counter[Lane] = Counter()
        self.routers = [self._router() for _ in range(options.routers)]
        self.counter = itertools.count()
        self.events: list[tuple[float, int, str, Any]] = []
        self.waits: list[float] = []
        self.served: Counter[Lane] = Counter()
        self.branches: Counter[str] = Counter()
        self.imbalances: list[float] = []
        self.excess: list[int] = []
        self.refused = 0
        self.over_bound = 0
        self.moved: list[float] = []

    def _router(self) -> Assigner:
        options = self.options
        breaker = BreakerLimits(depth=options.breaker_depth, factor=options.breaker_factor)
        assigner = Assigner(
            load_factor=options.load_factor,
            queue_bound=options.queue_bound,
            shared_bound=1,
            virtual_nodes=options.virtual_nodes,
            rng=random.Random(self.rng.random()),
            breaker=breaker,
        )
        assigner.set_members(self._members(), shared_lanes=False)
        return assigner

    def _members(self) -> list[Lane]:
        return [Lane(worker.name, channel) for worker in self.workers.values() for channel in range(worker.channels)]

    def at(self, when: float, kind: str, what: Any = None) -> None:
        """Plans an event."""
        heapq.heappush(self.events, (when, next(self.counter), kind, what))

    def run(self) -> dict[str, Any]:
        """Runs to the end; the figures."""
        options = self.options
        rate = options.load * sum(worker.channels for worker in self.workers.values())
        span = options.questions / rate
        for number, router in enumerate(self.routers):
            self.at(options.poll_s * (number + 1) / len(self.routers), "poll", router)
        for sample in range(SAMPLES):
            self.at(span * (0.1 + 0.9 * sample / SAMPLES), "look")
        if options.lose_at:
            self.at(options.lose_at, "lose")
        if options.join_at:
            self.at(options.join_at, "join")
        began = time.perf_counter()
        self.at(0.0, "arrive", 0)
        while self.events:
            now, _, kind, what = heapq.heappop(self.events)
            if kind == "arrive":
                self._arrive(now)
                if what + 1 < options.questions:
                    self.at(now + self.rng.expovariate(rate), "arrive", what + 1)
            elif kind == "done":
                self._done(now, *what)
            elif kind == "poll":
                self._poll(now, what, span)
            elif kind == "look":
                self._look()
            else:
                self._change(kind)
        return self._figures(time.perf_counter() - began)

    def _arrive(self, now: float) -> None:
        router = self.rng.choice(self.routers)
        placement = router.assign(self.keys.draw(), Priority.NORMAL, now=now)
        if placement is None or self.depths[placement.lane] >= self.options.queue_bound:
            if placement is not None:
                router.loads.undo([placement.lane])
                router.full(placement.lane)
            self.refused += 1
            return
        mean = router.loads.total / len(router.ring)
        self.over_bound += router.loads.of(placement.lane) > math.ceil(self.options.load_factor * mean)
        router.loads.confirm([placement.lane])
        self.branches[placement.branch.value] += 1
        self.depths[placement.lane] += 1
        worker = self.workers.get(placement.lane.source)
        if worker is None:  # it left, and this router has not noticed: any worker adopts what it held
            worker = self.rng.choice(list(self.workers.values()))
        worker.queue.append((now, placement.lane))
        self._take(now, worker)

    def _take(self, now: float, worker: Worker) -> None:
        while worker.queue and worker.busy < worker.channels:
            since, lane = worker.queue.popleft()
            self.waits.append(now - since)
            worker.busy += 1
            self.at(now + self.rng.expovariate(1.0), "done", (worker, lane))

    def _done(self, now: float, worker: Worker, lane: Lane) -> None:
        worker.busy -= 1
        self.served[lane] += 1
        self.depths[lane] -= 1
        if not self.depths[lane]:
            del self.depths[lane]
        self._take(now, worker)

    def _poll(self, now: float, router: Assigner, span: float) -> None:
        router.loads.mark()
        router.loads.observe(self.depths)
        before = router.ring
        router.set_members(self._members(), shared_lanes=False)
        if router.ring is not before:
            pairs = ((before.home(bucket), router.ring.home(bucket)) for bucket in range(self.options.buckets))
            self.moved.append(sum(one != two for one, two in pairs) / self.options.buckets)
        if now < span:
            self.at(now + self.options.poll_s, "poll", router)

    def _look(self) -> None:
        members = self._members()
        total = sum(self.depths[lane] for lane in members)
        if total:
            deepest = max(self.depths[lane] for lane in members)
            mean = total / len(members)
            self.imbalances.append(deepest / mean)
            self.excess.append(max(0, deepest - math.ceil(self.options.load_factor * mean)))

    def _change(self, kind: str) -> None:
        if kind == "join":
            name = f"w{len(self.workers)}-new"
            self.workers[name] = Worker(name, self.options.channels_per_worker)
            return
        gone = self.workers.pop(next(iter(self.workers)))
        heirs = list(self.workers.values())
        for item in gone.queue:  # orphans: taken by whoever is free
            self.rng.choice(heirs).queue.append(item)

    def _figures(self, wall_s: float) -> dict[str, Any]:
        waits = np.array(self.waits)
        served = [self.served[lane] for lane in self._members()]
        placed = sum(self.branches.values())
        quantiles = {f"p{q}": round(float(np.percentile(waits, q)), 4) for q in (50, 95, 99)}
        return {
            "placed": placed,
            "refused": self.refused,
            "wait_in_service_times": {**quantiles, "max": round(float(waits.max()), 3)},
            "assigned_max_over_mean": round(max(served) / (sum(served) / len(served)), 3),
            "depth_max_over_mean": round(float(np.mean(self.imbalances)), 3) if self.imbalances else None,
            "depth_above_bound_mean_and_max": [round(float(np.mean(self.excess)), 3), max(self.excess, default=0)],
            "above_bound_in_own_view": self.over_bound,
            "branches": {name: round(count / placed, 4) for name, count in sorted(self.branches.items())},
            "breaker_trips": sum(router.breakers.trips for router in self.routers),
            "buckets_moved_per_change": [round(share, 4) for share in self.moved[: 2 * len(self.routers)]],
            "microseconds_per_question": round(1e6 * wall_s / max(1, placed), 1),
        }


def options_from(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Simulates the routing policies.")
    parser.add_argument("--channels", type=int, default=1024)
    parser.add_argument("--channels-per-worker", type=int, default=32)
    parser.add_argument("--questions", type=int, default=200_000)
    parser.add_argument("--routers", type=int, default=1)
    parser.add_argument("--poll-s", type=float, default=0.25, help="in mean service times")
    parser.add_argument("--keys", default="uniform", help="uniform, zipf:EXPONENT:KEYS, hot:SHARE or none")
    parser.add_argument("--load", type=float, default=0.8, help="arrivals as a share of what all channels can serve")
    parser.add_argument("--buckets", type=int, default=4096)
    parser.add_argument("--virtual-nodes", type=int, default=64)
    parser.add_argument("--load-factor", type=float, default=1.25)
    parser.add_argument("--queue-bound", type=int, default=64)
    parser.add_argument("--breaker-depth", type=int, default=8, help="0 is off")
    parser.add_argument("--breaker-factor", type=float, default=1.5)
    parser.add_argument("--lose-at", type=float, default=0.0, help="a worker is lost at this time")
    parser.add_argument("--join-at", type=float, default=0.0, help="a worker joins at this time")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


def main() -> None:
    """Runs and prints."""
    options = options_from()
    print(json.dumps({"options": vars(options), **Simulation(options).run()}, indent=1))


if __name__ == "__main__":
    main()
