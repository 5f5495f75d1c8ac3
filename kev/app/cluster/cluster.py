"""A whole cluster on this machine: broker, router, workers and aggregator as processes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from kev.app.cluster.broker import Broker
from kev.app.cluster.child import Say, Spec
from kev.app.cluster.keeper import Keeper
from kev.config.settings import Settings
from kev.telemetry.logs import in_json, json_line
from kev.wire.tls import target_of

LOOPBACK = ("127.0.0.1", "localhost", "::1")
WORKER_DRAIN_S = 20.0


def say_on_stderr(name: str, line: str) -> None:
    """One line of one service, with its name in front; a JSON line says its service itself."""
    if in_json() and not line.startswith("{"):
        line = json_line(level="info", service="kev", logger=__name__, message=line, about=name)
    sys.stderr.write(f"{line}\n" if in_json() else f"{name:<10} | {line}\n")
    sys.stderr.flush()


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the cluster answers."""

    router: str
    aggregator: str
    nats: str
    workers: Mapping[str, str]


class Cluster:
    """Starts and supervises the processes; an async context manager.

    A service that dies is started again. All of them die with this process,
    also when it is killed. Use it in the main thread's event loop.

    Args:
        settings: Already checked, from the same file, environment and flags.
        devices: ``core.device`` of each worker; none leaves the settings' own.
        config: The file that the services read, or empty.
        flags: ``section.key`` -> value, on top of file and environment.
        free_ports: Take free ports instead of the configured ones.
        data: Keeps the broker's store there; None takes a temporary place.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        workers: int = 1,
        devices: Sequence[str] = (),
        config: str = "",
        flags: Mapping[str, str] | None = None,
        free_ports: bool = False,
        data: Path | None = None,
        say: Say = say_on_stderr,
    ) -> None:
        self._settings = settings
        self._config = config
        self._flags = dict(flags or {})
        self._free = free_ports
        self._say = say
        self.broker = Broker(0 if free_ports else _broker_port(settings.bus.url), data, say)
        self._devices = tuple(devices)
        self._names = [f"w{number}" for number in range(1, workers + 1)]
        self.services: dict[str, Keeper] = {}

    async def __aenter__(self) -> Addresses:
        try:
            return await self.start()
        except BaseException:
            await self.stop()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> Addresses:
        """Starts everything and waits until it is ready.

        Raises:
            BusUnavailable, ChildDied: something did not start; the text says what and why.
        """
        await self.broker.start()
        keepers = [self._aggregator(), *(self._worker(at) for at in range(len(self._names)))]
        starting = [asyncio.create_task(self._start(keeper)) for keeper in keepers]
        try:
            aggregator, *workers = [facts["address"] for facts in await asyncio.gather(*starting)]
        finally:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
        # The router last: its first look at the fleet then shows all workers.
        router = (await self._start(self._router(aggregator)))["address"]
        return Addresses(router, aggregator, self.broker.url, dict(zip(self._names, workers, strict=True)))

    async def stop(self) -> None:
        """Ends everything: the door first, the broker last."""
        for names in (("router",), self._names, ("aggregator",)):
            await asyncio.gather(*(self.services[name].stop() for name in names if name in self.services))
        await self.broker.stop()

    async def _start(self, keeper: Keeper) -> Mapping[str, str]:
        self.services[keeper.spec.name] = keeper
        return await keeper.start()

    def _router(self, aggregator: str) -> Keeper:
        listen = self._listen(self._settings.router.listen)
        flags = {"router.listen": listen, "router.aggregator": aggregator, **self._metrics(0)}
        return Keeper(self._spec("router", "router_svc", flags), self._say, pin=Pin("router.listen"))

    def _aggregator(self) -> Keeper:
        flags = {"aggregator.listen": self._listen(self._settings.aggregator.listen), **self._metrics(1)}
        return Keeper(self._spec("aggregator", "aggregator_svc", flags), self._say, pin=Pin("aggregator.listen"))

    def _worker(self, number: int) -> Keeper:
        flags = {
            "inference.worker_id": self._names[number],
            "inference.listen": "127.0.0.1:0",
            "core.threads": str(self._settings.core.threads or _share_of_cores(len(self._names))),
            **({"core.device": self._devices[number]} if self._devices else {}),
            **self._metrics(2 + number),
        }
        return Keeper(self._spec(self._names[number], "inference_svc", flags, WORKER_DRAIN_S), self._say)

    def _spec(self, name: str, module: str, flags: Mapping[str, str], drain_s: float = 10.0) -> Spec:
        every = {**self._flags, "bus.url": self.broker.url, **flags}
        return Spec(name=name, module=module, flags=every, config=self._config, drain_s=drain_s)

    def _listen(self, configured: str) -> str:
        return "127.0.0.1:0" if self._free else configured

    def _metrics(self, offset: int) -> dict[str, str]:
        """Each process needs a port of its own: they count up from the configured one."""
        port = self._settings.metrics.port
        return {"metrics.port": str(port + offset if port and not self._free else 0)}


@dataclass(frozen=True, slots=True)
class Pin:
    """Makes the address of a ready line the one to listen on after a restart."""

    key: str

    def __call__(self, facts: Mapping[str, str]) -> dict[str, str]:
        return {self.key: target_of(facts["address"])[0]}


def _share_of_cores(workers: int) -> int:
    """Threads of one worker's forward when several share the machine."""
    return max(1, len(os.sched_getaffinity(0)) // workers) if hasattr(os, "sched_getaffinity") else 1


def _broker_port(url: str) -> int:
    """The configured port where the broker is meant to be on this machine; else a free one."""
    parts = urlsplit(url.split(",")[0])
    return parts.port or 4222 if parts.hostname in LOOPBACK else 0
