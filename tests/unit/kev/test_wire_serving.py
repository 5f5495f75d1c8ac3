"""What services rely on: one address each, health, the error table, signals."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kev.config.load import ConfigError
from kev.domain.errors import InvalidArgument, KevError, NotFound, Overloaded
from kev.v1 import router_pb2, router_pb2_grpc
from kev.wire.options import CHANNEL_OPTIONS, KEEPALIVE_MS, SERVER_OPTIONS
from kev.wire.process import read_ready, say_ready, settings_from_command_line
from kev.wire.serving import GrpcHost, StartError, forever, open_channel, run_service
from kev.wire.status import error_from

NAME = "kev.v1.RouterService"


class Raising(router_pb2_grpc.RouterServiceServicer):
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def Submit(self, request: Any, context: Any) -> Any:
        raise self.error

    async def Ask(self, request: Any, context: Any) -> Any:
        yield router_pb2.AskResponse()
        raise self.error

    async def Cancel(self, request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.DATA_LOSS, "own words")


async def _host(error: Exception) -> tuple[GrpcHost, str]:
    host = GrpcHost("127.0.0.1:0", [NAME])
    router_pb2_grpc.add_RouterServiceServicer_to_server(Raising(error), host.server)
    return host, await host.start()


async def _error_of(call: Any) -> KevError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_from(caught.value)


async def test_errors_arrive_as_themselves() -> None:
    host, address = await _host(InvalidArgument("batch.isolation", "must be strict"))
    async with open_channel(address) as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        bad = await _error_of(stub.Submit(router_pb2.SubmitRequest()))
        assert isinstance(bad, InvalidArgument)
        assert bad.field == "batch.isolation"
        host_error = await _error_of(stub.Cancel(router_pb2.CancelRequest()))
        assert "own words" in str(host_error)
    await host.stop(0)


async def test_a_stream_gives_its_frames_then_its_error() -> None:
    host, address = await _host(Overloaded("full", 250))
    async with open_channel(address) as channel:
        call = router_pb2_grpc.RouterServiceStub(channel).Ask(router_pb2.AskRequest())
        assert isinstance(await call.read(), router_pb2.AskResponse)
        full = await _error_of(call.read())
        assert isinstance(full, Overloaded)
        assert full.retry_after_ms == 250
    await host.stop(0)


async def test_an_unknown_error_does_not_leak_its_text() -> None:
    host, address = await _host(RuntimeError("the secret"))
    async with open_channel(address) as channel:
        error = await _error_of(router_pb2_grpc.RouterServiceStub(channel).Submit(router_pb2.SubmitRequest()))
        assert "secret" not in str(error)
        assert "internal error" in str(error)
    await host.stop(0)


async def test_bytes_that_are_no_request_are_the_callers_mistake_in_reflection_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host, address = await _host(NotFound("unused"))
    async with open_channel(address) as channel:
        call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        asked = b"\x3a\x01*"  # list_services
        assert NAME.encode() in (await call(iter([asked])).read())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            _ = [reply async for reply in call(iter([asked, b"\xff"]))]
    await host.stop(grace=0)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not [record for record in caplog.records if record.exc_info]


async def test_health_follows_what_the_service_says_of_itself() -> None:
    """Watched, so that every change is awaited, not guessed."""
    host, address = await _host(NotFound("x"))
    well = True
    following = asyncio.create_task(host.follow_health(lambda: well, every_s=0.01))
    async with open_channel(address) as channel, asyncio.timeout(30):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=NAME))
        for well in (True, False, True):
            wanted = health_pb2.HealthCheckResponse.SERVING if well else health_pb2.HealthCheckResponse.NOT_SERVING
            while (await watch.read()).status != wanted:
                pass
    following.cancel()
    await host.stop(0)


async def test_health_follows_set_serving() -> None:
    host, address = await _host(NotFound("x"))
    async with open_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", NAME):
            reply = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert reply.status == health_pb2.HealthCheckResponse.NOT_SERVING
        await host.set_serving(True)
        for name in ("", NAME):
            reply = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
    await host.stop(0)


async def test_a_busy_port_is_one_clear_error() -> None:
    first, address = await _host(NotFound("x"))
    with pytest.raises(StartError, match=f"cannot listen on {address}: .*in use"):
        await GrpcHost(address, [NAME]).start()
    await first.stop(0)


@pytest.mark.parametrize("listen", ["50051", "host:", "host:99999", ":1", "host:x"])
async def test_a_bad_address_is_refused(listen: str) -> None:
    with pytest.raises(StartError, match="host:port"):
        await GrpcHost(listen, [NAME]).start()


@pytest.mark.parametrize("there", [True, False], ids=["with uvloop", "without"])
def test_a_service_runs_on_uvloop_where_it_is_installed(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[str] = []

    async def main() -> None:
        loops.append(type(asyncio.get_running_loop()).__module__)

    if there:
        pytest.importorskip("uvloop")
    else:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run_service(main) == 0
    assert loops[0].startswith("uvloop" if there else "asyncio")


def test_a_signal_drains_and_gives_code_0() -> None:
    drained: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            drained.append("yes")

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert run_service(main) == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert drained == ["yes"]


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (StartError("the port is taken"), 1, "error: the port is taken\n"),
        (ConfigError("a: bad\nb: worse"), 1, "error: a: bad\nerror: b: worse\n"),
        (NotFound("none"), 1, "error: none\n"),
        (LookupError("own kind"), 1, "error: own kind\n"),
        (ValueError("?"), 70, ""),
    ],
)
def test_errors_become_lines_and_exit_codes(
    error: Exception, code: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        raise error

    assert run_service(main, known=(LookupError,)) == code
    assert capsys.readouterr().err.startswith(shown)


def test_the_ready_line_can_be_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    say_ready("router", address="127.0.0.1:5", metrics="")
    line = capsys.readouterr().out
    assert read_ready(line) == {"service": "router", "address": "127.0.0.1:5"}
    assert read_ready("something else") is None


def test_flags_lie_on_top_and_are_checked() -> None:
    assert settings_from_command_line("x", ["--set", "aggregator.listen=1.2.3.4:5"]).aggregator.listen == "1.2.3.4:5"
    with pytest.raises(ConfigError, match=r"SECTION\.KEY=VALUE"):
        settings_from_command_line("x", ["--set", "nonsense"])


class Quiet(router_pb2_grpc.RouterServiceServicer):
    """Says nothing for long: six pings, as gRPC sends no more than one a second."""

    async def Submit(self, request: Any, context: Any) -> Any:
        await asyncio.sleep(6)
        return router_pb2.SubmitResponse(request_id="still here")


async def test_pings_do_not_end_a_long_quiet_call() -> None:
    """The project's own options, some hundred times faster where they count pings."""
    faster = {"grpc.keepalive_time_ms": KEEPALIVE_MS // 300, "grpc.keepalive_timeout_ms": 60_000}
    serving = [(key, value // 300 if "ping_interval" in key else value) for key, value in SERVER_OPTIONS]
    server = grpc.aio.server(options=[(key, faster.get(key, value)) for key, value in serving])
    router_pb2_grpc.add_RouterServiceServicer_to_server(Quiet(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    asking = [(key, faster.get(key, value)) for key, value in CHANNEL_OPTIONS]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=asking) as channel:
        reply = await router_pb2_grpc.RouterServiceStub(channel).Submit(router_pb2.SubmitRequest())
        assert reply.request_id == "still here"
    await server.stop(0)
