"""The metrics endpoint: the text format of Prometheus, quick enough for a process that has other things to do.

A scrape runs on a thread of its own, but while it formats lines the event
loop waits. So what never changes of a line, its name and labels, is kept.
Source of the format: Prometheus text exposition format, version 0.0.4.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

log = logging.getLogger(__name__)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_KEPT = 20_000
"""Heads of lines kept; labels are bounded, so this is never reached in earnest."""
_PLAIN = 1e6
"""Numbers below are written as Python writes them."""
PATIENCE_S = 10.0
"""How long a scraper may take to send its request."""
_TYPES = {"unknown": "untyped", "info": "gauge", "stateset": "gauge", "gaugehistogram": "histogram"}
_ENDINGS = {"counter": "_total", "info": "_info"}


class Exposition:
    """Renders a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._heads: dict[tuple[object, ...], str] = {}

    def render(self) -> bytes:
        """All metrics. Times of creation are left out: nobody asks for them, and they double the counters."""
        if len(self._heads) > MOST_KEPT:
            self._heads.clear()
        return "".join(self._lines()).encode()

    def _lines(self) -> Iterator[str]:
        for metric in self._registry.collect():
            yield _about(metric)
            yield from self._samples(metric.samples)

    def _samples(self, samples: Iterable[Sample]) -> Iterator[str]:
        heads = self._heads
        for name, labels, value, *_ in samples:
            key = (name, *labels.items())
            head = heads.get(key)
            if head is None:
                head = heads[key] = "" if name.endswith("_created") else _head(name, labels)
            if head:
                yield f"{head} {float(value)!r}\n" if -_PLAIN < value < _PLAIN else f"{head} {_large(value)}\n"


def _large(value: float) -> str:
    """A number that is written with an exponent, an infinity, or none at all."""
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return text


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A scraper that left early is no news; anything else is."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            log.exception("a scrape failed")


def serve(registry: CollectorRegistry, host: str, port: int) -> Callable[[], None]:
    """Answers GET /metrics on a thread of its own; returns what ends it.

    Raises:
        OSError: the port is taken, or the host is not this machine's.
    """
    exposition = Exposition(registry)

    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE_S

        def do_GET(self) -> None:
            found = self.path.partition("?")[0] in ("/metrics", "/")
            body = exposition.render() if found else b"metrics are at /metrics\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Scrapes are not logged."""

    server = _Server((host, port), Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()

    def end() -> None:
        server.shutdown()
        server.server_close()

    return end


def _about(metric: Metric) -> str:
    name = metric.name + _ENDINGS.get(metric.type, "")
    text = metric.documentation.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {text}\n# TYPE {name} {_TYPES.get(metric.type, metric.type)}\n"


def _head(name: str, labels: Mapping[str, str]) -> str:
    if not labels:
        return name
    pairs = (f'{label}="{_escaped(value)}"' for label, value in sorted(labels.items()))
    return f"{name}{{{','.join(pairs)}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
