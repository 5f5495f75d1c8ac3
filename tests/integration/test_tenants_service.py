"""Tenants and context pools over real gRPC and HTTP: the key decides what a caller sees, at every service."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from aggregator_svc.aggregator import Aggregator
from aggregator_svc.service import SERVICE, AggregatorServicer
from kev.app.http.app import create_app
from kev.app.remote import Remote
from kev.bus.memory import MemoryBus
from kev.bus.settings import BusSettings
from kev.client import AsyncClient, Client
from kev.domain.errors import InvalidArgument, NotFound, Unauthenticated
from kev.domain.outcome import Status
from kev.tokens.model_files import resolve_model
from kev.tokens.tokenizer import Tokenizer
from kev.v1 import aggregator_pb2_grpc, context_pb2_grpc, router_pb2_grpc
from kev.wire.relay import RelayAggregator
from kev.wire.serving import GrpcHost, open_channel, tenants_of
from router_svc.context_service import NAME as CONTEXTS
from router_svc.context_service import ContextServicer
from router_svc.router import Router
from router_svc.service import NAME, RouterServicer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit" / "router"))
from router_lab import answer_one, lease, settings_with

ACME, GLOBEX, WRONG = "acme-0123456789abcdef", "globex-0123456789abcd", "wrong-0123456789abcdef"
MANUAL = "The pump has two valves."


class Lab:
    """Router and aggregator with keys, over a memory bus; the worker is a task that answers at once."""

    def __init__(self, keys: dict[str, Any]) -> None:
        self.tokenizer = Tokenizer.load(resolve_model("default"))
        self.settings = settings_with(isolation__level="loose", auth__keys=keys)
        self.bus = MemoryBus(BusSettings(lease_s=3600))

    async def __aenter__(self) -> Lab:
        await self.bus.announce(lease(self.tokenizer))
        tenant = tenants_of(self.settings.auth)
        self.aggregator = Aggregator(self.bus, self.settings)
        self.behind = GrpcHost("127.0.0.1:0", [SERVICE])
        servicer = AggregatorServicer(self.aggregator, tenant=tenant)
        aggregator_pb2_grpc.add_AggregatorServiceServicer_to_server(servicer, self.behind.server)  # type: ignore[no-untyped-call]
        self.aggregator_address = await self.behind.start()
        self.to_aggregator = open_channel(self.aggregator_address)
        self.router = Router(self.bus, self.settings, self.tokenizer, rng=random.Random(1), poll_s=0.05)
        await self.router.start()
        self.host = GrpcHost("127.0.0.1:0", [NAME, CONTEXTS, SERVICE])
        server = self.host.server
        router_pb2_grpc.add_RouterServiceServicer_to_server(  # type: ignore[no-untyped-call]
            RouterServicer(self.router, self.to_aggregator, tenant), server
        )
        context_pb2_grpc.add_ContextServiceServicer_to_server(ContextServicer(self.router.contexts, tenant), server)  # type: ignore[no-untyped-call]
        aggregator_pb2_grpc.add_AggregatorServiceServicer_to_server(RelayAggregator(self.to_aggregator), server)  # type: ignore[no-untyped-call]
        self.address = await self.host.start()
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)
        await self.host.stop(0)
        await self.router.close()
        await self.to_aggregator.close()
        await self.behind.stop(0)
        await self.aggregator.close()
        await self.bus.close()

    async def _work(self) -> None:
        rang = asyncio.Event()
        await self.bus.on_bell("w1", lambda _: rang.set())
        while True:
            while await answer_one(self.bus) is not None:
                pass
            await rang.wait()
            rang.clear()


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with asyncio.timeout(60), Lab({"acme": ACME, "globex": [GLOBEX]}) as made:
        yield made


async def test_a_tenant_reads_its_own_requests_only(lab: Lab) -> None:
    async with AsyncClient(lab.address, api_key=ACME) as acme, AsyncClient(lab.address, api_key=GLOBEX) as globex:
        request_id = await acme.submit(["What is 2 + 2?"], request_id="same")
        assert [result.text for result in await acme.wait(request_id)] == ["4"]
        for call in (globex.wait(request_id, 0), globex.cancel(request_id), anext(globex.stream(request_id))):
            with pytest.raises(NotFound):
                await call
        assert await globex.submit(["Another question."], request_id="same") == "same"
        assert [result.status for result in await globex.wait("same")] == [Status.ANSWERED]
        assert [frame.text async for frame in acme.ask(["Why?"]) if frame.result] == ["4"]


async def test_a_tenant_sees_its_own_contexts_only(lab: Lab) -> None:
    async with AsyncClient(lab.address, api_key=ACME) as acme, AsyncClient(lab.address, api_key=GLOBEX) as globex:
        made = await acme.create_context("manual", MANUAL, ttl_ms=60_000)
        assert (made.replaced, made.expires_ms - made.created_ms) == (False, 60_000)
        assert (await acme.create_context("manual", MANUAL)).replaced
        assert [context.name for context in await acme.contexts()] == ["manual"]
        assert await globex.contexts() == []
        with pytest.raises(NotFound):
            await globex.delete_context("manual")
        for client, status in ((acme, Status.ANSWERED), (globex, Status.REFUSED)):
            request_id = await client.submit(["Valves?"], isolation="loose", context_pool="manual", prefix="In Latin.")
            (result,) = await client.wait(request_id)
            assert (result.status, result.reason) == (status, "" if status is Status.ANSWERED else "context_pool")
        await acme.delete_context("manual")
        with pytest.raises(InvalidArgument, match="name"):
            await acme.create_context("a/b", MANUAL)


@pytest.mark.parametrize("key", ["", WRONG])
async def test_nobody_calls_without_a_known_key(lab: Lab, key: str) -> None:
    async with (
        AsyncClient(lab.address, api_key=key) as client,
        AsyncClient(lab.aggregator_address, api_key=key) as direct,
    ):
        calls: list[Any] = [
            client.submit(["Why?"]),
            client.cancel("req-1"),
            client.wait("req-1", 0),
            client.contexts(),
            client.create_context("manual", MANUAL),
            client.delete_context("manual"),
            anext(client.ask(["Why?"])),
            anext(client.stream("req-1")),
            direct.wait("req-1", 0),
            anext(direct.stream("req-1")),
        ]
        for call in calls:
            with pytest.raises(Unauthenticated, match="API key") as caught:
                await call
            assert WRONG not in str(caught.value)


async def test_the_environments_key_is_used(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEV_API_KEY", ACME)
    async with AsyncClient(lab.address) as client:
        assert await client.contexts() == []

    def blocking() -> list[str]:
        with Client(lab.address) as client, Client(lab.address, api_key=WRONG) as stranger:
            client.create_context("manual", MANUAL)
            with pytest.raises(Unauthenticated):
                stranger.contexts()
            names = [context.name for context in client.contexts()]
            client.delete_context("manual")
            return names

    assert await asyncio.to_thread(blocking) == ["manual"]


async def test_a_status_says_what_is_missing(lab: Lab) -> None:
    async with open_channel(lab.address) as channel:
        from kev.v1 import context_pb2

        stub = context_pb2_grpc.ContextServiceStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ListPools(context_pb2.ListPoolsRequest())
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "Bearer" in (caught.value.details() or "")


async def test_the_http_door_passes_the_callers_key_on_and_never_its_own(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEV_API_KEY", ACME)
    remote = Remote(lab.address, "")
    transport = httpx.ASGITransport(create_app(remote), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://kev") as http:
        acme, globex = ({"authorization": f"Bearer {key}"} for key in (ACME, GLOBEX))
        for headers in ({}, {"authorization": f"Bearer {WRONG}"}, {"authorization": "Bearer short"}):
            for answer in (
                await http.get("/v1/contexts", headers=headers),
                await http.post("/v1/query", json={"queries": ["Why?"]}, headers=headers),
                await http.get("/v1/query/r1", headers=headers),
                await http.delete("/v1/query/r1", headers=headers),
            ):
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
                assert answer.json()["error"]["reason"] == "UNAUTHENTICATED"
        body = {"name": "manual", "text": MANUAL, "ttl_ms": 60_000}
        made = await http.post("/v1/contexts", json=body, headers=acme)
        assert (made.status_code, made.json()["name"], made.json()["tokens"] > 5) == (201, "manual", True)
        assert (await http.post("/v1/contexts", json=body, headers=acme)).status_code == 200
        assert [one["name"] for one in (await http.get("/v1/contexts", headers=acme)).json()["contexts"]] == ["manual"]
        assert (await http.get("/v1/contexts", headers=globex)).json() == {"contexts": []}
        assert (await http.delete("/v1/contexts/manual", headers=globex)).status_code == 404
        query = {
            "queries": [{"text": "Valves?", "context_pool": "manual"}],
            "isolation": "loose",
            "prefix": "In Latin.",
        }
        answer = await http.post("/v1/query", json={**query, "request_id": "r1"}, headers=acme)
        assert answer.json()["results"][0]["status"] == "answered"
        assert (await http.get("/v1/query/r1", headers=globex)).status_code == 404
        assert (await http.get("/v1/query/r1", headers=acme)).json()["complete"]
        refused = await http.post("/v1/query", json=query, headers=globex)
        assert refused.json()["results"][0]["reason"] == "context_pool"
        assert (await http.delete("/v1/contexts/manual", headers=acme)).status_code == 204
        strict = await http.post("/v1/query", json={**query, "isolation": "strict"}, headers=acme)
        assert (strict.status_code, strict.json()["error"]["fields"][0]["field"]) == (422, "queries[0].context_pool")
        for bad, field in (
            ({"name": "a b", "text": "x"}, "name"),
            ({"name": "a"}, "text"),
            ({**body, "more": 1}, "more"),
        ):
            answer = await http.post("/v1/contexts", json=bad, headers=acme)
            assert (answer.status_code, answer.json()["error"]["fields"][0]["field"]) == (422, field)
        assert (await http.get("/healthz")).status_code in (200, 503)
        assert "/v1/contexts" in (await http.get("/openapi.json")).json()["paths"]
    await remote.close()
