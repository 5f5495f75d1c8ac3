"""The aggregator's service over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from aggregator_lab import Cluster, cluster, joined, until
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aggregator_svc.__main__ import drain
from aggregator_svc.aggregator import wall_ms
from kev.domain.errors import BusUnavailable, FellBehind, InvalidArgument, KevError, NotFound
from kev.domain.result import Frame, ResumePoint
from kev.v1 import aggregator_pb2 as pb
from kev.v1 import aggregator_pb2_grpc
from kev.wire.options import STREAM_WINDOW_BYTES
from kev.wire.result import frame_from, frames_from, resume_to
from kev.wire.serving import open_channel
from kev.wire.status import error_from


@pytest.fixture
async def lab() -> AsyncIterator[Cluster]:
    async with cluster(wall_ms, patience_s=0.2) as made:
        yield made


@pytest.fixture(params=["direct", "relayed"])
async def stub(request: pytest.FixtureRequest, lab: Cluster) -> AsyncIterator[Any]:
    address = lab.aggregator_address if request.param == "direct" else lab.router_address
    async with open_channel(address) as channel:
        yield aggregator_pb2_grpc.AggregatorServiceStub(channel)


async def _error(call: Any) -> KevError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_from(caught.value)


async def _frames(call: Any) -> list[Frame]:
    return [frame_from(reply.frame) async for reply in call]


async def test_stream_and_results(lab: Cluster, stub: Any) -> None:
    await lab.producer.open("r", 2, now_ms=wall_ms())
    reading = asyncio.create_task(_frames(stub.Stream(pb.StreamRequest(request_id="r"))))
    waiting = asyncio.ensure_future(stub.GetResults(pb.GetResultsRequest(request_id="r", wait_ms=60_000)))
    await until(lambda: lab.bus._feeds)
    await lab.producer.say("r", 1, 0, "Hé")
    await lab.producer.end("r", 0, "中文🙂")
    await lab.producer.end("r", 1, "Héllo")
    assert joined(await reading) == {0: "中文🙂", 1: "Héllo"}
    reply = await waiting
    assert reply.complete
    assert [(result.slot, result.text, result.audit.channel) for result in reply.results] == [
        (0, "中文🙂", "w/0"),
        (1, "Héllo", "w/1"),
    ]
    await until(lambda: lab.idle)


async def test_several_frames_come_in_one_reply_only_where_that_is_asked_for(lab: Cluster, stub: Any) -> None:
    await lab.producer.open("r", 3, now_ms=wall_ms())
    for slot in range(3):
        await lab.producer.end("r", slot, f"text {slot}")
    single = [reply async for reply in stub.Stream(pb.StreamRequest(request_id="r"))]
    assert [len(reply.more) for reply in single] == [0, 0, 0]
    grouped = [reply async for reply in stub.Stream(pb.StreamRequest(request_id="r", grouped=True))]
    assert len(grouped) < 3
    frames = [frame for reply in grouped for frame in frames_from(reply)]
    assert joined(frames) == joined([frame_from(reply.frame) for reply in single])


async def test_resume(lab: Cluster, stub: Any) -> None:
    await lab.producer.open("r", 1, now_ms=wall_ms())
    await lab.producer.end("r", 0, "abcdef")
    points = resume_to((ResumePoint(0, 1, 4),))
    (frame,) = await _frames(stub.Stream(pb.StreamRequest(request_id="r", resume=points)))
    assert (frame.text_offset, frame.text) == (4, "ef")


async def test_errors_carry_their_kind(lab: Cluster, stub: Any) -> None:
    await lab.producer.open("r", 1, now_ms=wall_ms())
    assert isinstance(await _error(stub.Stream(pb.StreamRequest(request_id="none")).read()), NotFound)
    assert isinstance(await _error(stub.GetResults(pb.GetResultsRequest(request_id="none"))), NotFound)
    bad = await _error(stub.GetResults(pb.GetResultsRequest(request_id="a b")))
    assert isinstance(bad, InvalidArgument)
    assert bad.field == "request_id"
    points = resume_to((ResumePoint(7, 1, 4),))
    bad = await _error(stub.Stream(pb.StreamRequest(request_id="r", resume=points)).read())
    assert isinstance(bad, InvalidArgument)
    assert bad.field == "resume.slot"


async def test_before_the_callers_deadline_pending_goes_out(lab: Cluster, stub: Any) -> None:
    await lab.producer.open("r", 2, now_ms=wall_ms())
    await lab.producer.end("r", 0, "a")
    reply = await stub.GetResults(pb.GetResultsRequest(request_id="r", wait_ms=60_000), timeout=1.5)
    assert not reply.complete
    assert [result.status for result in reply.results] == [pb_status("ANSWERED"), pb_status("PENDING")]
    frames = await _frames(stub.Stream(pb.StreamRequest(request_id="r"), timeout=1.5))
    assert [(f.slot, f.result.status if f.result else "") for f in frames] == [(0, "answered"), (1, "pending")]


def pb_status(name: str) -> int:
    from kev.v1 import frame_pb2

    return frame_pb2.SlotStatus.Value(f"SLOT_STATUS_{name}")


async def test_a_disconnected_reader_leaves_nothing_behind(lab: Cluster, stub: Any) -> None:
    await lab.producer.open("r", 1, now_ms=wall_ms())
    call = stub.Stream(pb.StreamRequest(request_id="r"))
    waiting = stub.GetResults(pb.GetResultsRequest(request_id="r", wait_ms=60_000))
    reading = asyncio.ensure_future(call.read())
    asked = asyncio.ensure_future(waiting)
    await until(lambda: lab.bus._feeds)
    await asyncio.sleep(0.05)
    call.cancel()
    waiting.cancel()
    await asyncio.gather(reading, asked, return_exceptions=True)
    await until(lambda: lab.idle)


async def test_a_reader_that_does_not_read_is_cut_off_and_can_resume(lab: Cluster) -> None:
    await lab.producer.open("r", 1, now_ms=wall_ms())
    async with open_channel(lab.aggregator_address) as channel:
        stub = aggregator_pb2_grpc.AggregatorServiceStub(channel)
        call = stub.Stream(pb.StreamRequest(request_id="r"))
        first = asyncio.ensure_future(call.read())
        await until(lambda: lab.bus._feeds)
        whole = ""
        while not lab.idle:  # until the reader is cut off
            word = f"{len(whole)} ".ljust(500, ".")
            await lab.producer.say("r", 0, len(whole), word)
            whole += word
            await asyncio.sleep(0.001)
        await lab.producer.end("r", 0, whole)
        frames = [frame_from((await first).frame)]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _collect(call, frames)
        assert isinstance(error_from(caught.value), FellBehind)
        handed_over = len(joined(frames)[0])
        assert handed_over < min(len(whole), 10 * STREAM_WINDOW_BYTES), "gRPC was handed a bounded amount"
        place = ResumePoint(0, 1, handed_over)
        frames += await _frames(stub.Stream(pb.StreamRequest(request_id="r", resume=resume_to((place,)))))
    assert joined(frames) == {0: whole}


async def _collect(call: Any, into: list[Frame]) -> None:
    while (reply := await call.read()) is not grpc.aio.EOF:
        into.append(frame_from(reply.frame))


async def test_one_slow_reader_does_not_hold_up_another(lab: Cluster) -> None:
    await lab.producer.open("r", 1, now_ms=wall_ms())
    async with open_channel(lab.aggregator_address) as slow, open_channel(lab.aggregator_address) as fast:
        stuck = aggregator_pb2_grpc.AggregatorServiceStub(slow).Stream(pb.StreamRequest(request_id="r"))
        reading = asyncio.create_task(
            _frames(aggregator_pb2_grpc.AggregatorServiceStub(fast).Stream(pb.StreamRequest(request_id="r")))
        )
        await until(lambda: lab.bus._feeds)
        words = [f"{number} ".ljust(500, ".") for number in range(1000)]  # several windows full
        for number, word in enumerate(words):
            await lab.producer.say("r", 0, number * 500, word)
            await asyncio.sleep(0.001)
        whole = "".join(words)
        await lab.producer.end("r", 0, whole)
        assert joined(await reading) == {0: whole}
        stuck.cancel()


async def test_draining_lets_readers_finish_and_sends_the_rest_elsewhere(lab: Cluster) -> None:
    await lab.producer.open("short", 1, now_ms=wall_ms())
    await lab.producer.open("long", 1, now_ms=wall_ms())
    async with open_channel(lab.aggregator_address) as channel:
        stub = aggregator_pb2_grpc.AggregatorServiceStub(channel)
        health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""))
        assert (await health.read()).status == health_pb2.HealthCheckResponse.SERVING
        short = asyncio.create_task(_frames(stub.Stream(pb.StreamRequest(request_id="short"))))
        long = asyncio.create_task(_frames(stub.Stream(pb.StreamRequest(request_id="long"))))
        await until(lambda: len(lab.bus._feeds) == 2)
        draining = asyncio.create_task(drain(lab.results_host, lab.aggregator, 0.5))
        assert (await health.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        health.cancel()
        await lab.producer.end("short", 0, "done")
        assert joined(await short) == {0: "done"}
        error = await _error(long)
        assert isinstance(error, BusUnavailable)
        assert "stopping" in str(error)
        await draining


async def test_reflection_names_the_service(lab: Cluster) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    async with open_channel(lab.aggregator_address) as channel:
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([request]))
        names = [service.name for service in (await call.read()).list_services_response.service]
        assert "kev.v1.AggregatorService" in names
        call.cancel()
