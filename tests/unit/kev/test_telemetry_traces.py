"""Traces: one tree of spans from the caller to the settled outcome; nothing is imported while they are off."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from engine_lab import fake_model, fake_settings
from trace_lab import Spans, recorded

from kev.app.engine.tiers import Tiers
from kev.app.http.app import create_app
from kev.app.http.telling import Told
from kev.client.queries import batch_of
from kev.config.load import load_settings
from kev.config.settings import TraceSettings
from kev.config.source import ConfigError
from kev.telemetry import traces

OTHERS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = OTHERS[:-1] + "0"


@pytest.fixture
def spans() -> Iterator[Spans]:
    with recorded() as made:
        yield made


@pytest.fixture
async def tiers(default_model: Path) -> Any:
    running = Tiers(fake_settings(), fake_model(default_model))
    running.worker._self_test = None
    await running.start()
    yield running
    await running.close()


async def asked(tiers: Tiers, *texts: str) -> str:
    request_id = ""
    async for frame in tiers.ask(batch_of(list(texts), max_tokens=4)):
        request_id = frame.request_id
    return request_id


@pytest.mark.model
async def test_one_tree_from_the_ask_to_the_outcome(tiers: Tiers, spans: Spans) -> None:
    request_id = await asked(tiers, "Why?", "How?", "")
    await tiers.worker.drain(5)
    (root,) = spans.named("ask")
    assert root.parent is None
    assert {span.context.trace_id for span in spans.all()} == {root.context.trace_id}
    assert spans.paths() == {
        "ask": 1,
        "ask/router submit": 1,
        "ask/router submit/router prepare": 1,
        "ask/router submit/router place": 1,
        "ask/router submit/router place/queue": 2,
        "ask/router submit/router place/question": 2,
        "ask/router submit/router place/question/prefill": 2,
        "ask/router submit/router place/question/decode": 2,
        "ask/router submit/router place/question/settle": 2,
        "ask/aggregator stream": 1,
    }
    for span in spans.named("question"):
        assert span.attributes["kev.request_id"] == request_id
        assert span.attributes["kev.slot"] in (0, 1)
        assert span.attributes["kev.status"] == "answered"
        assert span.attributes["kev.channel"].startswith("lab/")
        assert span.start_time <= span.end_time
    for slot in (0, 1):
        prefill, decode, settle = (spans.of_slot(name, slot) for name in ("prefill", "decode", "settle"))
        assert prefill.end_time == decode.start_time
        assert decode.end_time <= settle.start_time
    texts = str([span.attributes for span in spans.all()])
    assert "Why?" not in texts


@pytest.mark.model
async def test_a_callers_trace_is_followed_through_http(tiers: Tiers, spans: Spans) -> None:
    transport = httpx.ASGITransport(Told(create_app(tiers)))
    async with httpx.AsyncClient(transport=transport, base_url="http://kev") as client:
        body = {"queries": ["Why?"], "max_tokens": 2}
        for parent in (OTHERS, UNSAMPLED, "nonsense"):
            reply = await client.post("/v1/query", json=body, headers={"traceparent": parent})
            assert reply.json()["complete"]
    await tiers.worker.drain(5)
    followed, fresh = spans.named("http request")
    assert f"{followed.context.trace_id:032x}" == OTHERS.split("-")[1]
    assert f"{followed.parent.span_id:016x}" == OTHERS.split("-")[2]
    assert fresh.parent is None
    assert followed.attributes["kev.route"] == "POST /v1/query"
    assert followed.attributes["kev.status"] == "200"
    assert spans.paths()["http request/ask/router submit/router place/question/decode"] == 2


@pytest.mark.model
async def test_a_reader_of_its_own_joins_the_trace_of_the_request(tiers: Tiers, spans: Spans) -> None:
    submitted = await tiers.submit(batch_of("Why?", max_tokens=2))
    assert (await tiers.wait(submitted.request_id, 20))[0].ok
    assert spans.paths()["router submit/aggregator wait"] == 1


@pytest.mark.model
async def test_while_they_are_off_there_are_none(tiers: Tiers) -> None:
    with recorded() as spans:
        traces.use(None)
        await asked(tiers, "Why?")
        assert not spans.all()
    assert traces.current() == ""
    assert traces.begin("x") is None
    assert traces.span("x") is traces.span("y")


def test_an_error_names_its_kind_and_not_its_text(spans: Spans) -> None:
    with pytest.raises(ValueError, match="secret"), traces.span("work"):
        raise ValueError("secret")
    (span,) = spans.named("work")
    assert span.status.description == "ValueError"
    assert not span.events


def test_generators_of_one_task_keep_their_parents(spans: Spans) -> None:
    first = traces.begin("first")
    with traces.span("between"):
        second = traces.begin("second")
    traces.end(first)
    traces.end(second)
    assert spans.paths() == {"first": 1, "between": 1, "between/second": 1}


def test_the_share_of_new_traces_is_chosen() -> None:
    with recorded(sample=0.0) as spans:
        with traces.span("own"):
            pass
        with traces.span("followed", OTHERS):
            pass
        assert [span.name for span in spans.all()] == ["followed"]


FRESH = """
import sys
from kev.app.engine import Engine
import router_svc.service, aggregator_svc.service, kev.app.http.telling, kev.client
from kev.config.settings import TraceSettings
from kev.telemetry import traces
traces.set_up(TraceSettings(), "x")
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def test_nothing_is_imported_while_they_are_off() -> None:
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.strip() == "[]"


def test_missing_packages_are_a_mistake_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"trace\.endpoint: .*kev-serving\[trace\]"):
        traces.set_up(TraceSettings(endpoint="http://127.0.0.1:1"), "x")


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://x", "http://user:pw@x", "http:// x"])
def test_a_bad_address_is_named(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"trace\.endpoint: must be http"):
        load_settings(flags={"trace.endpoint": endpoint}, environment={})


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("https://c/own/path", "https://c/own/path"),
    ],
)
def test_the_usual_path_is_added(given: str, used: str) -> None:
    assert traces._address(given) == used
