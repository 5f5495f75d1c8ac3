"""``kev top``: figures from two readings of metrics, and the screen."""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge
from rich.console import Console
from typer.testing import CliRunner

from kev.app.cli.main import app
from kev.app.top.figures import Figures, Reading
from kev.app.top.scrape import read
from kev.app.top.view import view
from kev.wire.exposition import serve

ROUTER = """
kev_router_questions_total{{bucket="7",branch="home"}} {hot}
kev_router_questions_total{{bucket="7",branch="spill_ring"}} {spilt}
kev_router_questions_total{{bucket="1",branch="home"}} {cold}
kev_router_breaker_state{{bucket="7"}} 2
kev_router_workers 2
"""
WORKER = """
kev_inference_kv_pages 100
kev_inference_kv_region_pages{{region="free"}} 25
kev_inference_channels{{state="decode"}} 3
kev_inference_channels{{state="free"}} 13
kev_inference_forwards_total {forwards}
kev_inference_pack_channels_sum {channels}
kev_inference_tokens_total {tokens}
"""


def router(hot: float = 0, spilt: float = 0, cold: float = 0) -> str:
    return ROUTER.format(hot=hot, spilt=spilt, cold=cold)


def worker(forwards: float = 0, channels: float = 0, tokens: float = 0) -> str:
    return WORKER.format(forwards=forwards, channels=channels, tokens=tokens)


def figures(before: dict[str, str | None], now: dict[str, str | None], seconds: float = 10.0) -> Figures:
    return Figures(Reading.of(100.0, before), Reading.of(100.0 + seconds, now))


def test_rates_are_growth_over_time_summed_over_replicas():
    found = figures({"a": router(10), "b": router(0)}, {"a": router(40), "b": router(10)})
    assert found.rate("kev_router_questions_total") == 4.0
    assert found.rates("kev_router_questions_total", "bucket") == {"7": 4.0, "1": 0.0}


def test_a_service_that_started_anew_counts_from_zero():
    assert figures({"a": router(1000)}, {"a": router(30)}).rate("kev_router_questions_total") == 3.0


def test_a_replica_that_has_just_come_tells_nothing_yet():
    found = figures({"a": router(0)}, {"a": router(10), "b": router(5000)})
    assert found.rate("kev_router_questions_total") == 1.0


def test_a_series_that_is_new_at_a_known_replica_began_at_zero():
    before = {"a": "kev_router_workers 1\n"}
    assert figures(before, {"a": router(hot=20)}).rate("kev_router_questions_total") == 2.0


def test_shares_are_sorted_and_leave_out_what_stands_still():
    found = figures({"a": router()}, {"a": router(hot=50, spilt=25, cold=25)})
    assert found.shares("kev_router_questions_total", "bucket") == [("7", 7.5, 0.75), ("1", 2.5, 0.25)]
    assert [row[0] for row in found.shares("kev_router_questions_total", "branch")] == ["home", "spill_ring"]


def test_a_quantile_is_interpolated_between_the_readings():
    def waits(one: int, two: int, every: int) -> str:
        return (
            "\n".join(f'w_bucket{{le="{le}"}} {count}' for le, count in (("1", one), ("2", two), ("+Inf", every)))
            + "\n"
        )

    found = figures({"a": waits(100, 100, 100)}, {"a": waits(110, 120, 120)})
    assert found.quantile("w", 0.5) == pytest.approx(1.0)
    assert found.quantile("w", 0.75) == pytest.approx(1.5)
    assert math.isnan(figures({"a": waits(1, 1, 1)}, {"a": waits(1, 1, 1)}).quantile("w", 0.5))
    assert math.isnan(found.quantile("nothing", 0.5))


def test_the_screen_shows_workers_buckets_and_what_does_not_answer():
    found = figures(
        {"r:1": router(), "w:1": worker(), "w:2": None},
        {"r:1": router(50, 25, 25), "w:1": worker(forwards=10, channels=40, tokens=30), "w:2": None},
    )
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(view(found))
    text = console.export_text()
    hot = next(line for line in text.splitlines() if "75%" in line and "open" in line)
    assert "7.5" in hot
    row = next(line for line in text.splitlines() if "w:1" in line)
    assert "4" in row
    assert "25%" in row
    assert "no answer: w:2" in text


@pytest.fixture
def endpoint() -> Iterator[tuple[str, CollectorRegistry]]:
    import socket

    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    registry = CollectorRegistry()
    stop = serve(registry, "127.0.0.1", port)
    yield f"localhost:{port}", registry
    stop()


async def test_endpoints_are_read_by_name(endpoint: tuple[str, CollectorRegistry]):
    address, registry = endpoint
    Gauge("kev_router_workers", "Workers.", registry=registry).set(3)
    reading = await read([address, "127.0.0.1:1"])
    assert reading.most("kev_router_workers") == 3
    assert reading.missing == ("127.0.0.1:1",)


def test_once_prints_one_interval(endpoint: tuple[str, CollectorRegistry]):
    address, registry = endpoint
    counter = Counter("kev_router_questions", "Questions.", ["bucket", "branch"], registry=registry)
    counter.labels("7", "home")
    ending = threading.Event()

    def ask() -> None:
        while not ending.wait(0.01):
            counter.labels("7", "home").inc()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        done = CliRunner().invoke(app, ["top", address, "--once", "--every", "0.3"])
    finally:
        ending.set()
        thread.join()
    assert done.exit_code == 0, done.output
    assert "Buckets" in done.output
    assert "100%" in done.output


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:99999", ":9100"])
def test_a_bad_address_says_what_is_allowed(address: str):
    done = CliRunner().invoke(app, ["top", address, "--once"])
    assert done.exit_code == 1
    assert "must be HOST:PORT" in done.output


def test_nothing_there_is_one_clear_line():
    done = CliRunner().invoke(app, ["top", "127.0.0.1:1", "--once"])
    assert done.exit_code == 1
    assert "no metrics at 127.0.0.1:1" in done.output
