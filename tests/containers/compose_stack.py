"""The compose deployment under test: a project of its own, on free ports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("nats", "router", "inference", "aggregator", "gateway", "prometheus", "grafana")
KEV_SERVICES = ("router", "inference", "aggregator", "gateway")
BUILD_S = 1700


def engine_answers() -> bool:
    """Whether `docker info` works here."""
    if shutil.which("docker") is None:
        return False
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def compose_command() -> list[str] | None:
    """Compose v2 if there is one, else the older docker-compose."""
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=30, check=False)
    if plugin.returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


def docker(*arguments: str, check: bool = True) -> str:
    """Output of a docker command."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=120, check=False)
    if check and done.returncode:
        raise AssertionError(f"docker {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def wait_for(read: Callable[[], T], fits: Callable[[T], bool], what: str, patience_s: float = 120.0) -> T:
    """Reads until it fits: containers have no event that a test could wait for."""
    until = time.monotonic() + patience_s
    while True:
        found = read()
        if fits(found):
            return found
        if time.monotonic() > until:
            raise AssertionError(f"{what}: still {found!r} after {patience_s:g} s")
        time.sleep(0.5)


class Stack:
    """One compose project."""

    def __init__(self, project: str) -> None:
        command = compose_command()
        assert command is not None
        self.project = project
        self._command = [*command, "--project-name", project]
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("KEV_")}
        self._environment |= dict.fromkeys(
            ("PUBLISH_ROUTER", "PUBLISH_HTTP", "PUBLISH_PROMETHEUS", "PUBLISH_GRAFANA"), "0"
        )
        # Patient, so that a machine with much else to do does not take its workers for dead.
        self._environment |= {"KEV_VERSION": "test", "KEV_BUS_ACK_WAIT_MS": "30000", "KEV_BUS_LEASE_MS": "15000"}

    def compose(self, *arguments: str, timeout_s: float = 300, **environment: str) -> str:
        """Runs compose in the checkout; a failure ends the test with its output."""
        done = subprocess.run(
            [*self._command, *arguments],
            cwd=ROOT,
            env=self._environment | environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"compose {' '.join(arguments)}:\n{(done.stdout + done.stderr)[-4000:]}"
        return done.stdout

    def up(self, workers: int = 1, **environment: str) -> None:
        """Starts everything, or changes the number of workers."""
        self.compose("up", "--detach", "--no-build", "--scale", f"inference={workers}", **environment)

    def down(self) -> None:
        """Ends everything and deletes its volumes."""
        self.compose("down", "--volumes", "--timeout", "60")

    def containers(self, service: str, *, everything: bool = False) -> list[str]:
        """Ids of a service's running containers."""
        labels = [f"label=com.docker.compose.project={self.project}", f"label=com.docker.compose.service={service}"]
        every = ["--all"] if everything else []
        return docker("ps", "--quiet", *every, "--filter", labels[0], "--filter", labels[1]).split()

    def left_over(self) -> list[str]:
        """What a project that was taken down must not leave behind."""
        label = f"label=com.docker.compose.project={self.project}"
        kinds = (("ps", "--all"), ("volume", "ls"), ("network", "ls"))
        return [line for kind in kinds for line in docker(*kind, "--quiet", "--filter", label).split()]

    def address(self, service: str, inner: int) -> str:
        """Where a service's port is published."""
        return self.compose("port", service, str(inner)).strip()

    @property
    def router(self) -> str:
        """The router's address."""
        return self.address("router", 50051)

    def health(self) -> dict[str, list[str]]:
        """Health of each container by service."""
        return {
            service: [
                docker("inspect", "--format", "{{.State.Health.Status}}", container)
                for container in self.containers(service)
            ]
            for service in SERVICES
        }

    def query(self, promql: str) -> list[dict[str, Any]]:
        """The result of an instant query of Prometheus."""
        return self._api("query", query=promql)["result"]

    def number(self, promql: str) -> float:
        """The one value of a query; NaN when there is none."""
        found = self.query(promql)
        return float(found[0]["value"][1]) if found else float("nan")

    def targets(self) -> dict[str, list[str]]:
        """Health of Prometheus' targets by job."""
        found: dict[str, list[str]] = {}
        for target in self._api("targets")["activeTargets"]:
            found.setdefault(target["labels"]["job"], []).append(target["health"])
        return found

    def alerts(self) -> dict[str, str]:
        """Alerts that are pending or firing."""
        return {alert["labels"]["alertname"]: alert["state"] for alert in self._api("alerts")["alerts"]}

    def _api(self, path: str, **arguments: str) -> Any:
        base = f"http://{self.address('prometheus', 9090)}/api/v1/{path}"
        with urllib.request.urlopen(f"{base}?{urlencode(arguments)}", timeout=30) as reply:
            return json.load(reply)["data"]
