"""One trace over real connections: gRPC metadata to router and aggregator, message headers to the worker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "unit" / "kev"))
from engine_lab import fake_model, fake_settings
from trace_lab import Spans, recorded

from aggregator_svc.aggregator import Aggregator
from aggregator_svc.service import SERVICE, AggregatorServicer
from inference_svc.worker import Worker
from kev.bus.nats import NatsBus
from kev.bus.nats.server import LocalNats
from kev.client import AsyncClient
from kev.v1.aggregator_pb2_grpc import add_AggregatorServiceServicer_to_server
from kev.v1.router_pb2_grpc import add_RouterServiceServicer_to_server
from kev.wire.bus_settings import bus_settings
from kev.wire.relay import RelayAggregator
from kev.wire.serving import GrpcHost, open_channel
from router_svc.router import Router
from router_svc.service import NAME, RouterServicer

pytestmark = pytest.mark.model


@pytest.fixture
def spans() -> Iterator[Spans]:
    with recorded() as made:
        yield made


@pytest.fixture
async def router_at(default_model: Path, tmp_path: Path) -> AsyncIterator[str]:
    """The three tiers, each with a connection of its own to a real broker; the router's address."""
    model = fake_model(default_model)
    async with AsyncExitStack() as stack:
        server = stack.enter_context(LocalNats(tmp_path))
        settings = fake_settings(bus_url=server.url)

        async def bus(name: str) -> NatsBus:
            made = await NatsBus.connect(bus_settings(settings, name))
            stack.push_async_callback(made.close)
            return made

        worker = Worker(await bus("worker"), settings, model.backend, model.tokenizer, worker_id="lab", self_test=None)
        await worker.start()
        stack.push_async_callback(worker.close)
        running = asyncio.ensure_future(worker.run())
        stack.callback(running.cancel)

        results = GrpcHost("127.0.0.1:0", [SERVICE])
        aggregator = Aggregator(await bus("aggregator"), settings)
        add_AggregatorServiceServicer_to_server(AggregatorServicer(aggregator), results.server)  # type: ignore[no-untyped-call]
        channel = await stack.enter_async_context(open_channel(await results.start()))
        stack.push_async_callback(results.stop, 0)

        door = GrpcHost("127.0.0.1:0", [NAME, SERVICE])
        router = Router(await bus("router"), settings, model.tokenizer)
        add_RouterServiceServicer_to_server(RouterServicer(router, channel), door.server)  # type: ignore[no-untyped-call]
        add_AggregatorServiceServicer_to_server(RelayAggregator(channel), door.server)  # type: ignore[no-untyped-call]
        address = await door.start()
        await router.start()
        stack.push_async_callback(router.close)
        stack.push_async_callback(door.stop, 0)
        yield address
        await worker.drain(5)


async def settled(spans: Spans, slots: int) -> None:
    """Waits until each slot's last span is there."""
    async with asyncio.timeout(20):
        while len(spans.named("settle")) < slots:  # noqa: ASYNC110 - spans have no event
            await asyncio.sleep(0.01)


async def test_an_ask_is_one_trace_over_all_services(router_at: str, spans: Spans) -> None:
    async with AsyncClient(router_at) as client:
        frames = [frame async for frame in client.ask(["Why?", "How?"], max_tokens=3)]
    assert sum(frame.result is not None for frame in frames) == 2
    await settled(spans, 2)
    assert len({span.context.trace_id for span in spans.all()}) == 1
    placed = "client ask/ask/router submit/router place"
    assert spans.paths() == {
        "client ask": 1,
        "client ask/ask": 1,
        "client ask/ask/router submit": 1,
        "client ask/ask/router submit/router prepare": 1,
        placed: 1,
        f"{placed}/queue": 2,
        f"{placed}/question": 2,
        f"{placed}/question/prefill": 2,
        f"{placed}/question/decode": 2,
        f"{placed}/question/settle": 2,
        "client ask/ask/aggregator stream": 1,
    }


async def test_a_submit_and_a_later_reader_share_the_trace_of_the_submit(router_at: str, spans: Spans) -> None:
    async with AsyncClient(router_at) as client:
        request_id = await client.submit(["Why?"], max_tokens=3)
        assert (await client.wait(request_id, 20))[0].ok
        assert [frame async for frame in client.stream(request_id)]
    await settled(spans, 1)
    (submit,) = spans.named("client submit")
    assert {span.context.trace_id for span in spans.all()} == {submit.context.trace_id}
    assert spans.paths()["client submit/submit/router submit/router place/question/decode"] == 1
    assert spans.paths()["client submit/submit/router submit/aggregator stream"] == 1
