"""A small cluster for tests: a real aggregator and router door over gRPC, a memory bus, and a scripted producer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aggregator_svc.aggregator import Aggregator
from aggregator_svc.service import SERVICE, AggregatorServicer
from kev.bus.memory import MemoryBus
from kev.bus.messages import Delta, Manifest, Piece, SlotPlan
from kev.bus.port import Bus
from kev.config.settings import AggregatorSettings, Settings
from kev.domain.errors import KevError
from kev.domain.ids import rid_of
from kev.domain.outcome import Audit, FinishReason, Outcome, Status, text_digest
from kev.domain.question import Batch, Isolation, ResultMode
from kev.domain.result import Frame
from kev.v1 import aggregator_pb2, aggregator_pb2_grpc, router_pb2, router_pb2_grpc
from kev.wire.question import batch_from
from kev.wire.relay import RelayAggregator
from kev.wire.serving import GrpcHost, open_channel


async def until(condition: Any, seconds: float = 20.0) -> None:
    """Waits until ``condition()`` is true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # looks at plain state
            await asyncio.sleep(0.005)


def joined(frames: list[Frame]) -> dict[int, str]:
    """The text of each slot, by the reader's rules, checked on the way."""
    shown: dict[int, str] = {}
    for frame in frames:
        before = "" if frame.reset else shown.get(frame.slot, "")
        assert frame.text_offset == len(before), frame
        shown[frame.slot] = before + frame.text
        if frame.result is not None and frame.result.status != "pending":
            assert frame.result.text == shown[frame.slot]
            assert frame.result.text_sha256 == text_digest(shown[frame.slot])
    return shown


class Producer:
    """Stands in for router and workers: opens requests, streams, settles."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus

    async def open(
        self, request_id: str, slots: int, *, now_ms: int, timeout_ms: int = 60_000, tenant: str = ""
    ) -> str:
        rid = rid_of(tenant, request_id)
        plans = tuple(SlotPlan(slot, now_ms + timeout_ms, f"q{slot}") for slot in range(slots))
        manifest = Manifest(rid, request_id, tenant, "d", now_ms, 2000, Isolation.STRICT, ResultMode.SLOT_MAP, plans)
        await self.bus.open_request(manifest)
        return rid

    async def say(self, request_id: str, slot: int, offset: int, text: str, attempt: int = 1) -> None:
        piece = Piece(slot, attempt, f"w/{slot}", offset, text)
        await self.bus.publish_delta(Delta(rid_of("", request_id), "w", (piece,)))

    async def end(
        self, request_id: str, slot: int, text: str, attempt: int = 1, status: Status = Status.ANSWERED
    ) -> None:
        await self.bus.settle(
            Outcome(
                request_id,
                rid_of("", request_id),
                slot,
                status,
                FinishReason.STOP if status is Status.ANSWERED else FinishReason.CANCELLED,
                f"q{slot}",
                text,
                len(text),
                text_digest(text),
                attempt,
                audit=Audit(channel=f"w/{slot}", worker_id="w", channel_id=slot, completion_tokens=len(text)),
            )
        )


class Door(router_pb2_grpc.RouterServiceServicer):
    """A router without a model: it opens requests; the test answers them."""

    def __init__(self, producer: Producer, aggregator: Any, now_ms: Any) -> None:
        self.producer, self.now_ms = producer, now_ms
        self.stub = aggregator_pb2_grpc.AggregatorServiceStub(aggregator)
        self.batches: list[Batch] = []
        self.refusals: list[KevError] = []
        self.left: list[str] = []
        self.cut_ask_after = -1

    async def _accept(self, batch: Batch) -> str:
        if self.refusals:
            raise self.refusals.pop(0)
        self.batches.append(batch)
        await self.producer.open(batch.request_id, len(batch.questions), now_ms=self.now_ms())
        return batch.request_id

    async def Submit(self, request: Any, context: Any) -> Any:
        batch = batch_from(request.batch, "")
        request_id = await self._accept(batch)
        return router_pb2.SubmitResponse(request_id=request_id, slots=len(batch.questions))

    async def Ask(self, request: Any, context: Any) -> Any:
        request_id = request.batch.request_id
        if not request.resume:
            request_id = await self._accept(batch_from(request.batch, ""))
        call = self.stub.Stream(aggregator_pb2.StreamRequest(request_id=request_id, resume=request.resume))
        count = 0
        try:
            async for reply in call:
                yield router_pb2.AskResponse(frame=reply.frame)
                count += 1
                if count == self.cut_ask_after:
                    self.cut_ask_after = -1
                    await context.abort(_unavailable(), "the router went away")
        except BaseException:
            self.left.append(request_id)
            raise
        finally:
            call.cancel()

    async def Cancel(self, request: Any, context: Any) -> Any:
        record = await self.producer.bus.request(rid_of("", request.request_id))
        assert record is not None
        slots = [slot for slot in record.open_slots() if not request.slots or slot in request.slots]
        for slot in slots:
            await self.producer.end(request.request_id, slot, "", 0, Status.CANCELLED)
        return router_pb2.CancelResponse(cancelled_slots=slots)


def _unavailable() -> Any:
    import grpc

    return grpc.StatusCode.UNAVAILABLE


class Cluster:
    """Addresses and parts of a running test cluster."""

    def __init__(self, bus: MemoryBus, now_ms: Any) -> None:
        self.bus, self.now_ms = bus, now_ms
        self.producer = Producer(bus)
        self.settings = Settings(aggregator=AggregatorSettings(reader_buffer=200))
        self.aggregator: Aggregator
        self.results_host: GrpcHost
        self.aggregator_address = ""
        self.router_address = ""
        self.door: Door

    async def start_aggregator(self, listen: str = "127.0.0.1:0", patience_s: float = 10.0) -> str:
        self.aggregator = Aggregator(self.bus, self.settings, clock=self.now_ms)
        self.results_host = GrpcHost(listen, [SERVICE])
        servicer = AggregatorServicer(self.aggregator, patience_s=patience_s)
        aggregator_pb2_grpc.add_AggregatorServiceServicer_to_server(servicer, self.results_host.server)
        self.aggregator_address = await self.results_host.start()
        await self.results_host.set_serving(True)
        return self.aggregator_address

    async def stop_aggregator(self) -> None:
        await self.results_host.stop(0)
        await self.aggregator.close()

    @property
    def idle(self) -> bool:
        """Whether nobody follows anything."""
        return not (self.aggregator._followers or self.aggregator._tasks or self.bus._feeds)


@asynccontextmanager
async def cluster(now_ms: Any, patience_s: float = 10.0) -> AsyncIterator[Cluster]:
    """A running cluster; everything is stopped at the end."""
    made = Cluster(MemoryBus(), now_ms)
    await made.start_aggregator(patience_s=patience_s)
    async with open_channel(made.aggregator_address) as channel:
        host = GrpcHost("127.0.0.1:0", ["kev.v1.RouterService", SERVICE])
        made.door = Door(made.producer, channel, now_ms)
        router_pb2_grpc.add_RouterServiceServicer_to_server(made.door, host.server)
        aggregator_pb2_grpc.add_AggregatorServiceServicer_to_server(RelayAggregator(channel), host.server)
        made.router_address = await host.start()
        try:
            yield made
        finally:
            await host.stop(0)
            await made.stop_aggregator()
