"""A router under far more load than its workers can take: does it stay small, fair and honest?

    python -m bench.router_overload [--seconds 60] [--times 10] [--capacity 80] [--submits 10000]

A real broker, a real router process, a load generator in another, and a stand-in worker of known capacity in this
one. Three parts:

* *calm*: 0.7 of the capacity under ``reject``: how long accepted questions take when nothing is wrong,
* *overload*: ``--times`` the capacity: the router's memory over time, the deepest queue against its bound, the times
  of the accepted questions, and whether every refusal says when to come back,
* *waiters*: ``--submits`` single questions at once under ``wait``: how they ended, and who waits at the end.

Prints one JSON line for each. ``ok`` in it says whether what must hold held.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import grpc

from bench.common_standin import StandIn
from kev.app.cluster.child import Child, Spec
from kev.bus.nats import NatsBus
from kev.bus.nats.server import LocalNats
from kev.config.load import load_settings
from kev.domain.errors import KevError, Overloaded
from kev.domain.question import Batch, Question
from kev.tokens.model_files import resolve_model
from kev.tokens.tokenizer import Tokenizer
from kev.v1.router_pb2 import SubmitRequest
from kev.v1.router_pb2_grpc import RouterServiceStub
from kev.wire.bus_settings import bus_settings
from kev.wire.options import open_channel
from kev.wire.question import batch_to
from kev.wire.status import error_from

CHANNELS, BOUND, SIZE = 8, 4, 4
"""Of the stand-in worker; questions in one channel's queue; questions of one batch."""
MIB = 1 << 20


@dataclass(slots=True)
class Sent:
    """What a load generator sent, and how it ended; ``no_delay`` counts refusals that do not say when to come back."""

    ends: Counter[str] = field(default_factory=Counter)
    no_delay: int = 0

    def unexplained(self) -> int:
        """Submits that were neither accepted nor refused with a reason of the project's own."""
        return sum(count for end, count in self.ends.items() if end not in ("accepted", Overloaded.__name__))

    async def submit(self, stub: Any, count: int, timeout_ms: int, number: int) -> None:
        """One batch."""
        texts = (f"What is {number} plus {item}?" for item in range(count))
        batch = Batch(questions=tuple(Question(text=text, timeout_ms=timeout_ms) for text in texts))
        try:
            await stub.Submit(SubmitRequest(batch=batch_to(batch)), timeout=60 + timeout_ms / 1000)
            self.ends["accepted"] += 1
        except grpc.aio.AioRpcError as error:
            known = error_from(error)
            self.ends[type(known).__name__ if type(known) is not KevError else str(known)[:80]] += 1
            self.no_delay += isinstance(known, Overloaded) and known.retry_after_ms <= 0


def steadily(address: str, rate: float, seconds: float) -> Sent:
    """So many questions a second, whatever becomes of them. Runs in a process of its own."""

    async def send() -> Sent:
        sent, running = Sent(), set[asyncio.Task[None]]()
        async with open_channel(address) as channel:
            stub: Any = RouterServiceStub(channel)  # type: ignore[no-untyped-call]
            began, number = time.monotonic(), 0
            while (passed := time.monotonic() - began) < seconds:
                while number * SIZE < passed * rate:
                    number += 1
                    running.add(task := asyncio.create_task(sent.submit(stub, SIZE, 30_000, number)))
                    task.add_done_callback(running.discard)
                await asyncio.sleep(0.005)
            await asyncio.gather(*running)
        return sent

    return asyncio.run(send())


def at_once(address: str, count: int) -> Sent:
    """So many single questions. Runs in a process of its own."""

    async def send() -> Sent:
        sent = Sent()
        async with open_channel(address) as channel:
            stub: Any = RouterServiceStub(channel)  # type: ignore[no-untyped-call]
            await asyncio.gather(*(sent.submit(stub, 1, 5_000, number) for number in range(count)))
        return sent

    return asyncio.run(send())


@dataclass(slots=True)
class Look:
    """The router's memory over time, MiB, and the deepest queue of a channel."""

    rss: list[float] = field(default_factory=list)
    deepest: int = 0

    async def watch(self, pid: int, bus: NatsBus) -> None:
        """Looks until cancelled."""
        while True:
            self.rss.append(rss_mib(pid))
            depths = await bus.depths()
            self.deepest = max([self.deepest, *(depth for lane, depth in depths.items() if not lane.shared)])
            await asyncio.sleep(0.1)

    def quarters(self) -> list[float]:
        """Memory at the start and after each quarter."""
        return [round(self.rss[min(len(self.rss) - 1, len(self.rss) * part // 4)], 1) for part in range(5)]

    def grown(self) -> float:
        """What the second half added."""
        half = len(self.rss) // 2
        return round(max(self.rss[half:]) - max(self.rss[: half or 1]), 1)


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096 / MIB


@asynccontextmanager
async def router(url: str, **flags: str) -> AsyncIterator[tuple[Child, str]]:
    """A router process and its address."""
    every = {"bus.url": url, "router.listen": "127.0.0.1:0", "bus.queue_bound": str(BOUND)}
    every |= {key.replace("__", "."): value for key, value in flags.items()}
    child = Child(Spec("router", "router_svc", every), lambda name, line: None)
    try:
        yield child, (await child.start())["address"]
    finally:
        await child.stop()


async def watched(pool: Executor, pid: int, bus: NatsBus, load: Callable[..., Sent], *given: Any) -> tuple[Sent, Look]:
    """Runs a load generator and looks at the router meanwhile."""
    look = Look()
    watching = asyncio.create_task(look.watch(pid, bus))
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, load, *given), look
    finally:
        watching.cancel()


async def rejecting(url: str, bus: NatsBus, worker: StandIn, pool: Executor, args: argparse.Namespace) -> bool:
    """Calm and overload."""
    async with router(url, router__overflow_policy="reject") as (child, address):
        assert child.pid is not None

        async def part(times: float, seconds: float) -> tuple[Sent, Look]:
            worker.times.clear()
            found = await watched(pool, child.pid or 0, bus, steadily, address, args.capacity * times, seconds)
            await worker.idle()
            return found

        await part(0.5, 2)  # first calls load what is loaded late
        calm, _ = await part(0.7, max(5.0, args.seconds / 4))
        calm_p99 = worker.p99()
        told("calm", offered=args.capacity * 0.7, ends=calm.ends, answered=len(worker.times), p99_s=calm_p99)
        sent, look = await part(args.times, args.seconds)
    # The last of a full queue waits for all before it.
    longest = round((BOUND + 1) * CHANNELS / args.capacity, 3)
    ok = look.deepest <= BOUND and not sent.no_delay and not sent.unexplained() and look.grown() < 8
    told(
        "overload",
        offered=args.capacity * args.times,
        ends=sent.ends,
        refusals_without_delay=sent.no_delay,
        deepest=look.deepest,
        bound=BOUND,
        answered=len(worker.times),
        p99_s=worker.p99(),
        full_queue_s=longest,
        rss_mib=look.quarters(),
        rss_grown_in_second_half_mib=look.grown(),
        ok=ok,
    )
    return ok


async def waiting(url: str, bus: NatsBus, pool: Executor, args: argparse.Namespace) -> bool:
    """Many single questions at once under ``wait``."""
    flags = {"router__overflow_policy": "wait", "metrics__port": str(args.metrics_port)}
    async with router(url, **flags) as (child, address):
        began = time.monotonic()
        sent, look = await watched(pool, child.pid or 0, bus, at_once, address, args.submits)
        seconds = round(time.monotonic() - began, 1)
        left = await waiters(args.metrics_port)
    ok = left == 0 and look.deepest <= BOUND and not sent.no_delay and not sent.unexplained()
    told(
        "waiters",
        submits=args.submits,
        seconds=seconds,
        ends=sent.ends,
        refusals_without_delay=sent.no_delay,
        deepest=look.deepest,
        rss_mib=look.quarters(),
        left=left,
        ok=ok,
    )
    return ok


async def waiters(port: int) -> float:
    """Submits that still wait, as the router's metrics tell."""
    from kev.app.top.scrape import read

    return (await read([f"127.0.0.1:{port}"])).most("kev_router_waiters")


def told(part: str, **facts: Any) -> None:
    """One line."""
    print(json.dumps({"part": part, **facts}), flush=True)


async def run(args: argparse.Namespace) -> bool:
    """All parts."""
    tokenizer = Tokenizer.load(resolve_model("default"))
    with LocalNats() as nats:
        settings = load_settings(flags={"bus.url": nats.url, "bus.queue_bound": BOUND}, environment={})
        bus = await NatsBus.connect(bus_settings(settings, "bench"))
        try:
            digest, context = tokenizer.digest, settings.core.max_context
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                async with StandIn(bus, digest, context, CHANNELS, CHANNELS / args.capacity) as worker:
                    rejected = await rejecting(nats.url, bus, worker, pool, args)
                    return await waiting(nats.url, bus, pool, args) and rejected
        finally:
            await bus.close()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the overload")
    parser.add_argument("--times", type=float, default=10.0, help="offered load in capacities")
    parser.add_argument("--capacity", type=float, default=80.0, help="questions a second of the stand-in worker")
    parser.add_argument("--submits", type=int, default=10_000)
    parser.add_argument("--metrics-port", type=int, default=19290)
    sys.exit(0 if asyncio.run(run(parser.parse_args())) else 1)


if __name__ == "__main__":
    main()
