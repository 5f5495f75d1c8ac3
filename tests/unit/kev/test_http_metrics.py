"""The HTTP door counts requests by route and status."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import REGISTRY

from kev.app.http.metrics import Counted


@pytest.fixture
def client() -> httpx.AsyncClient:
    app = FastAPI()

    @app.get("/v1/query/{request_id}")
    async def found(request_id: str) -> str:
        if request_id == "broken":
            raise RuntimeError("broken")
        return request_id

    transport = httpx.ASGITransport(Counted(app), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://kev")


def count(route: str, status: str) -> float:
    return REGISTRY.get_sample_value("kev_http_requests_total", {"route": route, "status": status}) or 0.0


async def test_requests_count_by_their_route_not_by_their_address(client: httpx.AsyncClient):
    before = count("GET /v1/query/{request_id}", "200")
    for name in ("one", "two", "three"):
        await client.get(f"/v1/query/{name}")
    assert count("GET /v1/query/{request_id}", "200") == before + 3


async def test_what_has_no_route_counts_under_one_name(client: httpx.AsyncClient):
    before = count("none", "404")
    for path in ("/a", "/b/c", "/../etc"):
        await client.get(path)
    assert count("none", "404") == before + 3


async def test_an_error_is_counted_and_nothing_stays_open(client: httpx.AsyncClient):
    before = count("GET /v1/query/{request_id}", "500")
    await client.get("/v1/query/broken")
    assert count("GET /v1/query/{request_id}", "500") == before + 1
    assert REGISTRY.get_sample_value("kev_http_open_requests") == 0
