"""Dashboards and alerts against the deployment's Prometheus, under a skewed load."""

from __future__ import annotations

import json
import math
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from compose_stack import ROOT, Stack, wait_for

from kev.client import Client

pytestmark = pytest.mark.containers
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
HOT = "Where is my card?"


def ask_over_http(address: str) -> None:
    body = json.dumps({"queries": [{"text": HOT, "max_tokens": 2}]}).encode()
    request = urllib.request.Request(f"http://{address}/v1/query", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=300).close()


class Load:
    """Batches one after the other: most questions are the same one, one of each batch is refused."""

    def __init__(self, router: str, gateway: str, size: int) -> None:
        self._router = router
        self._gateway = gateway
        self._size = size
        self._ending = threading.Event()
        self._sent = 0
        self.errors: list[Exception] = []

    def run(self) -> None:
        try:
            with Client(self._router) as client:
                while not self._ending.is_set():
                    client.wait(client.submit(self._batch(), max_tokens=3, timeout_ms=120_000))
                    ask_over_http(self._gateway)
        except Exception as error:
            self.errors.append(error)

    def end(self) -> None:
        self._ending.set()

    def _batch(self) -> list[str]:
        self._sent += 1
        others = [f"Question {self._sent}.{number}: what is it?" for number in range(self._size * 2 // 5)]
        return ["", *others, *[HOT] * (self._size - len(others) - 1)]


@contextmanager
def load(stack: Stack, clients: int, size: int) -> Iterator[None]:
    router, gateway = stack.router, stack.address("gateway", 8765)
    loads = [Load(router, gateway, size) for _ in range(clients)]
    threads = [threading.Thread(target=one.run, daemon=True) for one in loads]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for one in loads:
            one.end()
        for thread in threads:
            thread.join(timeout=180)
    assert not [error for one in loads for error in one.errors]


def numbers(stack: Stack, query: str) -> list[float]:
    """The values of a query that are numbers."""
    values = [float(found["value"][1]) for found in stack.query(query)]
    return [value for value in values if not math.isnan(value)]


def queries(file: Path) -> list[tuple[str, str]]:
    """Title and query of every target of every panel."""
    panels: list[dict[str, Any]] = json.loads(file.read_text())["panels"]
    return [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]


def test_every_query_of_every_panel_returns_data_under_a_skewed_load(stack: Stack):
    stack.up(workers=2)
    wait_for(lambda: stack.number("max(kev_router_workers)"), lambda found: found >= 2, "workers in the fleet")
    with load(stack, clients=2, size=40):
        wait_for(
            lambda: stack.number("max(kev:bucket_share:ratio1m)"), lambda share: share > 0.4, "the hot bucket's share"
        )
        worker = stack.query("topk(1, rate(kev_inference_forwards_total[1m]))")[0]["metric"]["instance"]
        for file in DASHBOARDS:
            for title, expression in queries(file):
                query = expression.replace("$worker", worker)
                wait_for(lambda query=query: numbers(stack, query), bool, f"{file.stem}, {title}: {query}", 150)
        buckets, channels = (stack.number(f"kev:{kind}_imbalance:ratio1m") for kind in ("bucket", "channel"))
    print(f"imbalance of buckets {buckets:.1f}, of channels {channels:.1f}")
    assert buckets > 10, "the hot bucket is not seen"
    assert channels < buckets / 2, "the spill does not even it out"


def test_the_hot_bucket_alert_fires_and_clears(stack: Stack):
    """Without spill and breaker a hot bucket buries its home: that is what the alert is for."""
    without = {"KEV_ROUTER_LOAD_FACTOR": "100", "KEV_ROUTER_BREAKER_DEPTH": "0"}
    stack.up(workers=3)
    stack.compose("up", "--detach", "--no-build", "--no-deps", "router", **without)
    wait_for(stack.health, lambda found: found["router"] == ["healthy"], "router")
    wait_for(lambda: stack.number("max(kev_router_workers)"), lambda found: found == 3, "workers in the fleet")
    with load(stack, clients=2, size=50):  # all that is hot fits into one channel's queue
        wait_for(lambda: stack.alerts().get("KevBucketHot"), lambda state: state == "firing", "the alert", 420)
        waits = [stack.number(f"max(kev:{whose}_wait_seconds:mean5m)") for whose in ("bucket", "other_buckets")]
        print(f"the hot bucket waits {waits[0]:.2f} s, the others {waits[1]:.2f} s")
        assert not any(math.isnan(wait) for wait in waits)
    wait_for(lambda: stack.alerts().get("KevBucketHot"), lambda state: state is None, "the alert's end", 300)
