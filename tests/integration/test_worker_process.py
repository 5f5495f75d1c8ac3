"""The worker as a process over a real broker: one clear line when it cannot start, a clean end when it can."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from worker_lab import nothing_queued, outcomes, question, submit

from kev.bus.messages import Lane
from kev.bus.nats import NatsBus
from kev.bus.nats.server import LocalNats
from kev.bus.settings import BusSettings
from kev.domain.outcome import Status
from kev.tokens.tokenizer import Tokenizer
from kev.v1 import worker_pb2, worker_pb2_grpc
from kev.wire.process import read_ready

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]
SMALL = ["router.channel_pool_size=4", "core.max_context=256"]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalNats]:
    with LocalNats() as running:
        yield running


async def _start(*sets: str, worker_id: str = "w1") -> asyncio.subprocess.Process:
    words = [word for setting in (*SMALL, "inference.listen=127.0.0.1:0", *sets) for word in ("--set", setting)]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "inference_svc",
        "--worker-id",
        worker_id,
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("KEV_")},
    )


@asynccontextmanager
async def _ready(broker: LocalNats, *sets: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    process = await _start(f"bus.url={broker.url}", *sets)
    try:
        assert process.stdout is not None
        facts = read_ready((await process.stdout.readline()).decode())
        assert facts is not None
        assert (facts["service"], facts["id"]) == ("worker", "w1")
        yield process, facts["address"]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _ends_with(*sets: str, worker_id: str = "w1") -> tuple[int | None, list[str]]:
    process = await _start(*sets, worker_id=worker_id)
    _, err = await process.communicate()
    return process.returncode, [line for line in err.decode().splitlines() if line.startswith("error: ")]


async def test_it_answers_describes_itself_and_drains(broker: LocalNats, default_model: Path) -> None:
    tokenizer = Tokenizer.load(default_model)
    bus = await NatsBus.connect(BusSettings(urls=(broker.url,)))
    async with _ready(broker) as (process, address), grpc.aio.insecure_channel(address) as channel:
        reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
        asked = [
            question(
                n, tokenizer.encode_text(text), max_tokens=4, tokenizer_digest=tokenizer.digest, lane=Lane("w1", n)
            )
            for n, text in enumerate(["One two three four", "Paris is the capital of"])
        ]
        await submit(bus, asked)
        found = await outcomes(bus)
        await nothing_queued(bus)
        assert {outcome.status for outcome in found.values()} == {Status.ANSWERED}
        assert all(outcome.text for outcome in found.values())
        stub = worker_pb2_grpc.WorkerServiceStub(channel)
        me = await stub.Describe(worker_pb2.DescribeRequest())
        assert (me.worker_id, me.state, me.channels, me.precision) == ("w1", "ready", 4, "fp32")
        assert me.backend in ("native", "reference")
        assert me.self_test.startswith("passed")
        assert list(me.levels) == ["strict"]
        assert me.kv_pages_free == me.kv_pages
        assert me.forwards >= 4
        drained = await stub.Drain(worker_pb2.DrainRequest(grace_ms=5000))
        assert (drained.finished, drained.returned) == (0, 0)
        assert await process.wait() == 0
        assert "w1" not in await bus.fleet()
    await bus.close()


async def test_a_signal_drains(broker: LocalNats, default_model: Path) -> None:
    async with _ready(broker) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_missing_model_is_one_line(broker: LocalNats) -> None:
    code, lines = await _ends_with(f"bus.url={broker.url}", "core.model_path=nowhere.gguf")
    assert code == 1
    assert len(lines) == 1
    assert "core.model_path: 'nowhere.gguf' does not exist" in lines[0]


async def test_a_busy_port_is_one_line(broker: LocalNats, default_model: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        code, lines = await _ends_with(f"bus.url={broker.url}", f"inference.listen=127.0.0.1:{port}")
    assert code == 1
    assert lines == [f"error: cannot listen on 127.0.0.1:{port}: Address already in use"]


async def test_no_broker_is_one_line() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code, lines = await _ends_with(f"bus.url=nats://127.0.0.1:{port}")
    assert code == 1
    assert len(lines) == 1
    assert f"no broker at 127.0.0.1:{port}" in lines[0]


async def test_bad_settings_are_one_line_each() -> None:
    code, lines = await _ends_with("router.max_batch_size=3", worker_id="Not Allowed")
    assert code == 1
    assert any("max_batch_size" in line for line in lines)
    code, lines = await _ends_with(worker_id="Not Allowed")
    assert code == 1
    assert "worker_id must be lower case" in lines[0]
