"""The metrics endpoint says what the library's own would say."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kev.config.settings import MetricsSettings
from kev.wire.exposition import CONTENT_TYPE, Exposition, serve
from kev.wire.process import StartError, serve_metrics


@pytest.fixture
def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    Counter("kev_things", "Things\nof \\ a kind.", ["bucket", "branch"], registry=made).labels("7", 'a"b\\c\nd').inc(3)
    Counter("kev_plain", "No labels.", registry=made).inc()
    Gauge("kev_now_seconds", "Now.", registry=made).set(float("inf"))
    Info("kev_about", "About.", registry=made).info({"version": "1"})
    histogram = Histogram("kev_wait_seconds", "Waiting.", ["bucket"], buckets=(0.5, 10), registry=made)
    for value in (0.1, 0.7, 1e9):
        histogram.labels("1").observe(value)
    return made


@pytest.fixture
def address(registry: CollectorRegistry, free_port: int) -> Iterator[str]:
    stop = serve(registry, "127.0.0.1", free_port)
    yield f"http://127.0.0.1:{free_port}"
    stop()


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port: int = door.getsockname()[1]
    return port


def told(text: str) -> dict[str, tuple[str, str, list[tuple[str, dict[str, str], float]]]]:
    return {
        family.name: (family.type, family.documentation, [tuple(sample[:3]) for sample in family.samples])
        for family in text_string_to_metric_families(text)
        if not family.name.endswith("_created")
    }


def test_it_tells_the_same_as_the_library(registry: CollectorRegistry):
    ours = Exposition(registry)
    for _ in range(2):  # the second time from what was kept
        assert told(ours.render().decode()) == told(generate_latest(registry).decode())


def test_values_are_read_anew_each_time(registry: CollectorRegistry):
    ours = Exposition(registry)
    gauge = Gauge("kev_again", "Again.", registry=registry)
    for value in (1.0, 2.5):
        gauge.set(value)
        assert f"kev_again {value}\n" in ours.render().decode()


def test_a_scrape_over_http(address: str):
    with urllib.request.urlopen(f"{address}/metrics", timeout=10) as reply:
        assert reply.headers["Content-Type"] == CONTENT_TYPE
        assert b"kev_plain_total 1.0" in reply.read()


def test_a_scraper_that_leaves_early_is_no_news(address: str, capfd: pytest.CaptureFixture[str]):
    import socket

    host, _, port = address.removeprefix("http://").partition(":")
    for _ in range(20):
        with socket.create_connection((host, int(port))) as scraper:
            scraper.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            scraper.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    with urllib.request.urlopen(f"{address}/metrics", timeout=10) as reply:
        assert reply.status == 200
    assert capfd.readouterr().err == ""


def test_other_paths_name_the_right_one(address: str):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{address}/other", timeout=10)
    assert caught.value.code == 404
    caught.value.close()


def test_a_taken_port_is_one_clear_line(registry: CollectorRegistry, free_port: int):
    stop = serve(registry, "127.0.0.1", free_port)
    try:
        with pytest.raises(StartError, match=f"metrics: cannot listen on 127.0.0.1:{free_port}"):
            serve_metrics(MetricsSettings(port=free_port))
    finally:
        stop()
