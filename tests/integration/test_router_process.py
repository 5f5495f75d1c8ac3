"""``python -m router_svc``: one ready line, a clean end, one clear line when it cannot start."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from pathlib import Path

from grpc_health.v1 import health_pb2, health_pb2_grpc

from kev.bus.nats.server import LocalNats
from kev.v1 import question_pb2, router_pb2, router_pb2_grpc
from kev.wire.process import read_ready
from kev.wire.serving import open_channel

DEADLINE_S = 60


async def _start(*sets: str, config: str | None = None) -> asyncio.subprocess.Process:
    arguments = [part for text in sets for part in ("--set", text)]
    if config is not None:
        arguments += ["--config", config]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "router_svc",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_it_serves_says_so_and_ends_cleanly(server: LocalNats) -> None:
    async with asyncio.timeout(DEADLINE_S):
        process = await _start("router.listen=127.0.0.1:0", f"bus.url={server.url}")
        assert process.stdout is not None
        facts = read_ready((await process.stdout.readline()).decode())
        assert facts is not None
        assert facts["service"] == "router"
        async with open_channel(facts["address"]) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            watch = health.Watch(health_pb2.HealthCheckRequest(service="kev.v1.RouterService"))
            async for reply in watch:
                if reply.status == health_pb2.HealthCheckResponse.SERVING:
                    break
            stub = router_pb2_grpc.RouterServiceStub(channel)  # type: ignore[no-untyped-call]
            batch = question_pb2.Batch(questions=[question_pb2.Question(text=" ")])
            reply = await stub.Submit(router_pb2.SubmitRequest(batch=batch))
            assert list(reply.refused_slots) == [0]
            watch.cancel()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def _failure(*sets: str, config: str | None = None) -> str:
    """The only line on stderr of a router that does not start."""
    async with asyncio.timeout(DEADLINE_S):
        process = await _start(*sets, config=config)
        _, stderr = await process.communicate()
    assert process.returncode == 1
    (line,) = stderr.decode().splitlines()
    return line


async def test_a_bad_key_is_named(tmp_path: Path) -> None:
    config = tmp_path / "kev.yaml"
    config.write_text("router:\n  strategi: round_robin\n")
    assert "router.strategi" in await _failure(config=str(config))


async def test_a_missing_model_is_named() -> None:
    assert "core.model_path" in await _failure("core.model_path=nowhere.gguf")


async def test_a_missing_broker_is_named() -> None:
    assert "127.0.0.1:1" in await _failure("bus.url=nats://127.0.0.1:1", "router.listen=127.0.0.1:0")


async def test_a_busy_port_is_named(server: LocalNats) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert address in await _failure(f"router.listen={address}", f"bus.url={server.url}")


async def test_a_taken_port_of_the_metrics_is_the_only_line(server: LocalNats) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = await _failure("router.listen=127.0.0.1:0", f"bus.url={server.url}", f"metrics.port={port}")
    assert line == f"error: metrics: cannot listen on 127.0.0.1:{port} (Address already in use)"
