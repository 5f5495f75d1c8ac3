"""The router's door over real gRPC, with a real aggregator behind it and a worker that the test plays."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aggregator_svc.aggregator import Aggregator
from aggregator_svc.service import SERVICE, AggregatorServicer
from kev.bus.memory import MemoryBus
from kev.bus.settings import BusSettings
from kev.client import AsyncClient
from kev.domain.errors import AlreadyUsed, BusUnavailable, InvalidArgument, KevError, NotFound, Overloaded
from kev.domain.ids import rid_of
from kev.domain.question import Priority
from kev.domain.result import Frame
from kev.tokens.model_files import resolve_model
from kev.tokens.tokenizer import Tokenizer
from kev.v1 import aggregator_pb2_grpc, frame_pb2, question_pb2, router_pb2, router_pb2_grpc
from kev.wire.question import batch_to
from kev.wire.result import frame_from
from kev.wire.serving import GrpcHost, open_channel
from kev.wire.status import error_from
from router_svc.router import Router
from router_svc.service import NAME, RouterServicer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit" / "router"))
from router_lab import answer_one, batch_of, lease, many, settings_with, until

T = TypeVar("T")
DEADLINE_S = 30
BOUND = 3


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(resolve_model("default"))


class Lab:
    """A memory bus, one worker's seat, both services."""

    def __init__(self, tokenizer: Tokenizer, **flags: Any) -> None:
        self.tokenizer = tokenizer
        self.settings = settings_with(bus__queue_bound=BOUND, **flags)
        self.bus = MemoryBus(BusSettings(queue_bound=BOUND, lease_s=3600))

    async def __aenter__(self) -> Lab:
        await self.bus.announce(lease(self.tokenizer))
        self.aggregator = Aggregator(self.bus, self.settings)
        self.behind = GrpcHost("127.0.0.1:0", [SERVICE])
        aggregator_pb2_grpc.add_AggregatorServiceServicer_to_server(  # type: ignore[no-untyped-call]
            AggregatorServicer(self.aggregator), self.behind.server
        )
        self.to_aggregator = open_channel(await self.behind.start())
        self.router = Router(self.bus, self.settings, self.tokenizer, rng=random.Random(1), poll_s=0.05, hurry_s=0.01)
        await self.router.start()
        self.host = GrpcHost("127.0.0.1:0", [NAME])
        self.servicer = RouterServicer(self.router, self.to_aggregator)
        router_pb2_grpc.add_RouterServiceServicer_to_server(  # type: ignore[no-untyped-call]
            self.servicer, self.host.server
        )
        self.address = await self.host.start()
        self.channel = open_channel(self.address)
        self.stub = router_pb2_grpc.RouterServiceStub(self.channel)  # type: ignore[no-untyped-call]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()
        await self.host.stop(0)
        await self.router.close()
        await self.to_aggregator.close()
        await self.behind.stop(0)
        await self.aggregator.close()
        await self.bus.close()

    async def status(self, slot: int, request_id: str = "r1") -> str | None:
        outcome = await self.bus.outcome(rid_of("", request_id), slot)
        return outcome.status.value if outcome else None


@pytest.fixture
async def lab(tokenizer: Tokenizer) -> AsyncIterator[Lab]:
    async with Lab(tokenizer) as made, asyncio.timeout(DEADLINE_S):
        yield made


async def _error(call: Any) -> KevError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_from(caught.value)


def _ask(lab: Lab, batch: Any, **options: Any) -> Any:
    return lab.stub.Ask(router_pb2.AskRequest(batch=batch_to(batch)), **options)


def _submit(lab: Lab, batch: Any) -> Any:
    return lab.stub.Submit(router_pb2.SubmitRequest(batch=batch_to(batch)))


async def _comes(read: Callable[[], Awaitable[T | None]]) -> T:
    """The first reading that is something."""
    while not (found := await read()):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    return found


async def _frames(call: Any) -> list[Frame]:
    return [frame_from(reply.frame) async for reply in call]


async def test_ask_streams_every_slots_end(lab: Lab) -> None:
    reading = asyncio.create_task(_frames(_ask(lab, batch_of("Why?", "", "How?"))))
    for _ in range(2):
        await _comes(lambda: answer_one(lab.bus, text="Because."))
    results = {frame.slot: frame.result for frame in await reading if frame.result}
    assert {slot: result.status for slot, result in results.items()} == {0: "answered", 1: "refused", 2: "answered"}
    assert results[1].reason == "empty"
    assert results[0].text == "Because."


async def test_leaving_ask_cancels_what_is_open(lab: Lab) -> None:
    hints: list[Any] = []
    await lab.bus.on_cancel(hints.append)
    call = _ask(lab, many(3))
    reading = asyncio.create_task(_frames(call))
    await _comes(lambda: answer_one(lab.bus))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await until(lambda: hints)
    statuses = sorted([str(await lab.status(slot)) for slot in range(3)])
    assert statuses == ["answered", "cancelled", "cancelled"]


def _staying(lab: Lab, ask_id: str, keep_ms: int = 60_000, **fields: Any) -> Any:
    request = router_pb2.AskRequest(batch=batch_to(many(2)), ask_id=ask_id, keep_ms=keep_ms, **fields)
    return lab.stub.Ask(request)


async def _left(call: Any) -> None:
    """Leaves a call, as a lost connection does."""
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.read()


async def _to_its_end(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


def _callers(lab: Lab) -> int:
    return sum(there.total() for there in lab.servicer._attendance._there.values())


async def _open(lab: Lab) -> None:
    """Waits until the first slot of the two is answered, so that the request stands."""
    await _comes(lambda: answer_one(lab.bus))


async def test_the_first_of_two_asks_to_leave_ends_nothing(lab: Lab) -> None:
    first, second = _ask(lab, many(2)), _ask(lab, many(2))
    await _open(lab)
    assert (await second.read()).frame.request_id == "r1"
    await _left(first)
    await until(lambda: _callers(lab) == 1)
    await answer_one(lab.bus)
    await _to_its_end(second)
    assert [await lab.status(slot) for slot in range(2)] == ["answered", "answered"]
    await until(lambda: len(lab.servicer._attendance) == 0)


async def test_the_last_of_two_asks_to_leave_ends_the_request(lab: Lab) -> None:
    first, second = _ask(lab, many(2)), _ask(lab, many(2))
    await _open(lab)
    await second.read()
    await _left(first)
    await _left(second)
    await _comes(lambda: lab.status(1))
    assert sorted([str(await lab.status(slot)) for slot in range(2)]) == ["answered", "cancelled"]


async def test_a_caller_whose_connection_was_lost_may_come_back(lab: Lab) -> None:
    call = _staying(lab, "mine")
    await _open(lab)
    await call.read()
    await _left(call)
    await until(lambda: lab.servicer._attendance._kept)
    points = [frame_pb2.ResumePoint(slot=0, attempt=0, text_offset=0)]
    named = question_pb2.Batch(request_id="r1")
    again = lab.stub.Ask(router_pb2.AskRequest(batch=named, ask_id="mine", keep_ms=60_000, resume=points))
    await again.read()
    await answer_one(lab.bus)
    await _to_its_end(again)
    assert [await lab.status(slot) for slot in range(2)] == ["answered", "answered"]


@pytest.mark.parametrize("said", [True, False])
async def test_a_caller_that_does_not_come_back_ends_its_slots(lab: Lab, said: bool) -> None:
    call = _staying(lab, "mine", 60_000 if said else 20)
    await _open(lab)
    await call.read()
    await _left(call)
    if said:
        await lab.stub.Cancel(router_pb2.CancelRequest(request_id="r1", ask_id="mine"))
    await _comes(lambda: lab.status(1))
    assert sorted([str(await lab.status(slot)) for slot in range(2)]) == ["answered", "cancelled"]
    await until(lambda: len(lab.servicer._attendance) == 0)


async def test_who_is_not_there_cannot_leave_for_another(lab: Lab) -> None:
    await _submit(lab, many(2))
    reply = await lab.stub.Cancel(router_pb2.CancelRequest(request_id="r1", ask_id="stranger"))
    assert not reply.cancelled_slots
    assert [await lab.status(slot) for slot in range(2)] == [None, None]


class Wire:
    """A connection to a service that can be cut, as a network does."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        from_service, to_service = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, to_service}
        ways = (self._pump(reader, to_service), self._pump(from_service, writer))
        await asyncio.gather(*ways, return_exceptions=True)
        self._writers -= {writer, to_service}

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
        sink.close()


async def test_an_ask_of_the_client_survives_a_lost_connection(lab: Lab) -> None:
    async with Wire(lab.address) as wire, AsyncClient(wire.address) as client:
        frames = client.ask(["Why?", "How?"], request_id="r1")
        first = asyncio.ensure_future(anext(frames))
        await _open(lab)
        await first
        wire.cut()
        rest = asyncio.ensure_future(_collected(frames))
        await until(lambda: wire.connections == 2 and _callers(lab) == 1 and not lab.servicer._attendance._kept)
        await answer_one(lab.bus)
        assert [frame.slot for frame in await rest if frame.result is not None]
    assert [await lab.status(slot) for slot in range(2)] == ["answered", "answered"]
    assert len(lab.servicer._attendance) == 0


async def _collected(frames: Any) -> list[Any]:
    return [frame async for frame in frames]


async def test_a_client_that_leaves_is_not_waited_for(lab: Lab) -> None:
    async with AsyncClient(lab.address) as client:
        async with aclosing(client.ask(["Why?", "How?"], request_id="r1")) as frames:
            first = asyncio.ensure_future(anext(frames))
            await _open(lab)
            await first
        assert len(lab.servicer._attendance._kept) == 0
        statuses = [await lab.status(slot) for slot in range(2)]
    assert sorted(map(str, statuses)) == ["answered", "cancelled"]


async def test_a_request_is_not_kept_for_ever(lab: Lab) -> None:
    error = await _error(_staying(lab, "mine", 60_001).read())
    assert isinstance(error, InvalidArgument)
    assert error.field == "keep_ms"


async def test_leaving_ask_while_it_waits_for_room_leaves_no_waiter(lab: Lab) -> None:
    await _submit(lab, many(2 * BOUND, "full"))
    call = _ask(lab, many(2))
    reading = asyncio.create_task(_frames(call))
    await until(lambda: lab.router.waiters == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await until(lambda: lab.router.waiters == 0)
    await _comes(lambda: lab.status(1))
    assert [await lab.status(slot) for slot in range(2)] == ["cancelled", "cancelled"]


async def test_ask_carries_its_deadline_into_the_queue(lab: Lab) -> None:
    call = _ask(lab, many(1), timeout=5)
    reading = asyncio.create_task(_frames(call))
    (taken,) = await _comes(lambda: lab.bus.take("w1", 1))
    assert taken.question.deadline_ms - taken.question.accepted_ms <= 5000
    call.cancel()
    await asyncio.wait({reading})


async def test_ask_with_a_used_id_leaves_the_other_request_alone(lab: Lab) -> None:
    await _submit(lab, many(2))
    assert isinstance(await _error(_frames(_ask(lab, many(3)))), AlreadyUsed)
    assert [await lab.status(slot) for slot in range(2)] == [None, None]


async def test_ask_without_an_aggregator_says_so_and_runs_on(tokenizer: Tokenizer) -> None:
    async with Lab(tokenizer) as lab, asyncio.timeout(DEADLINE_S):
        await lab.behind.stop(0)
        error = await _error(_frames(_ask(lab, many(1))))
        assert isinstance(error, BusUnavailable)
        assert "aggregator" in str(error)
        assert sum((await lab.bus.depths()).values()) == 1


async def test_submit_and_cancel(lab: Lab) -> None:
    reply = await _submit(lab, batch_of("Why?", "", priority=Priority.BACKGROUND))
    assert (reply.request_id, reply.slots, list(reply.refused_slots), reply.duplicate) == ("r1", 2, [1], False)
    assert (await _submit(lab, batch_of("Why?", "", priority=Priority.BACKGROUND))).duplicate
    ended = await lab.stub.Cancel(router_pb2.CancelRequest(request_id="r1"))
    assert list(ended.cancelled_slots) == [0]


async def test_mistakes_name_their_field(lab: Lab) -> None:
    bad = await _error(_submit(lab, batch_of("Why?", request_id="no good")))
    assert isinstance(bad, InvalidArgument)
    assert bad.field == "batch.request_id"
    empty = await _error(lab.stub.Submit(router_pb2.SubmitRequest()))
    assert isinstance(empty, InvalidArgument)
    assert isinstance(await _error(lab.stub.Cancel(router_pb2.CancelRequest(request_id="r9"))), NotFound)
    for request_id in ("", "*", "x" * 1_000_000):
        wrong = await _error(lab.stub.Cancel(router_pb2.CancelRequest(request_id=request_id)))
        assert isinstance(wrong, InvalidArgument)
        assert wrong.field == "request_id"


async def test_a_stream_goes_on_only_for_a_named_request(lab: Lab) -> None:
    points = [frame_pb2.ResumePoint(slot=0, attempt=1, text_offset=2)]
    error = await _error(lab.stub.Ask(router_pb2.AskRequest(batch=question_pb2.Batch(), resume=points)).read())
    assert isinstance(error, InvalidArgument)
    assert error.field == "batch.request_id"


async def test_reject_carries_a_retry_delay(tokenizer: Tokenizer) -> None:
    async with Lab(tokenizer, router__overflow_policy="reject") as lab, asyncio.timeout(DEADLINE_S):
        await _submit(lab, many(2 * BOUND, "full"))
        error = await _error(_submit(lab, many(1)))
        assert isinstance(error, Overloaded)
        assert error.retry_after_ms > 0


async def test_health_and_whole(lab: Lab) -> None:
    stub = health_pb2_grpc.HealthStub(lab.channel)
    await lab.host.set_serving(True)
    for name in ("", NAME):
        reply = await stub.Check(health_pb2.HealthCheckRequest(service=name))
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
