"""The first connection and the topology: one clear line when something does not fit."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
import trustme
from nats_support import SHORT, connect

from kev.bus.nats import NatsBus, TopologyMismatch
from kev.bus.nats.server import LocalNats, find_server
from kev.bus.settings import BusSettings
from kev.config.load import ConfigError, load_settings
from kev.domain.errors import BusUnavailable, InvalidArgument
from kev.wire.bus_settings import bus_settings


@pytest.fixture
def custom(tmp_path: Path) -> Iterator[object]:
    """Starts a nats-server with command-line options; returns its URL."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> str:
        process = subprocess.Popen(
            [find_server(), "-a", "127.0.0.1", "-p", "-1", "-sd", str(tmp_path), *options],
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stderr is not None
        for line in process.stderr:
            if "Listening for client connections on" in line:
                port = line.rpartition(":")[2].strip()
            if "Server is ready" in line:
                return f"127.0.0.1:{port}"
        raise AssertionError("nats-server did not start")

    yield start
    for process in started:
        process.terminate()
        process.wait(timeout=10)
        assert process.stderr is not None
        process.stderr.close()


async def refused(url: str, **changes: object) -> str:
    with pytest.raises(BusUnavailable) as error:
        await NatsBus.connect(BusSettings(**(SHORT | {"urls": (url,), "connect_timeout_s": 1.0} | changes)))
    assert "\n" not in str(error.value)
    return str(error.value)


async def test_no_broker_is_one_line_with_the_address():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        assert await refused(f"nats://{address}") == f"no broker at {address}: connection refused"


async def test_credentials_never_show_in_errors():
    line = await refused("nats://alice:secret@127.0.0.1:1", password="hidden", user="bob")
    assert "127.0.0.1:1" in line
    assert not {"alice", "secret", "bob", "hidden"} & set(line.replace(":", " ").replace("@", " ").split())
    assert "secret" not in repr(BusSettings(urls=("nats://alice:secret@h:1",), password="secret", token="secret"))


async def test_the_first_broker_that_answers_is_taken(server: LocalNats):
    bus = await NatsBus.connect(BusSettings(**(SHORT | {"urls": ("nats://127.0.0.1:1", server.url)})))
    assert await bus.depths() == {}
    await bus.close()


async def test_user_and_password(custom):
    address = custom("-js", "--user", "kev", "--pass", "pw")
    for wrong in ({}, {"user": "kev", "password": "wrong"}):
        assert re.search("uthoriz|credentials", await refused(f"nats://{address}", **wrong))
    bus = await NatsBus.connect(BusSettings(**(SHORT | {"urls": (address,), "user": "kev", "password": "pw"})))
    assert await bus.depths() == {}
    await bus.close()


async def test_token(custom):
    address = custom("-js", "--auth", "t0ken")
    assert re.search("uthoriz|credentials", await refused(f"nats://{address}", token="wrong"))
    bus = await NatsBus.connect(BusSettings(**(SHORT | {"urls": (address,), "token": "t0ken"})))
    await bus.close()


async def test_a_broker_without_jetstream_is_refused(custom):
    assert "JetStream" in await refused(f"nats://{custom()}")


async def test_a_broker_that_takes_small_messages_only_is_warned_of(custom, server: LocalNats, caplog):
    await (await NatsBus.connect(BusSettings(**(SHORT | {"urls": (server.url,)})))).close()
    assert "max_payload" not in caplog.text
    await (await NatsBus.connect(BusSettings(**(SHORT | {"urls": (custom("-js"),)})))).close()
    assert "at most 1048576 bytes" in caplog.text
    assert "set its max_payload to 8MB" in caplog.text


async def test_tls_files_that_are_missing_are_named():
    with pytest.raises(InvalidArgument, match="tls_ca"):
        await NatsBus.connect(BusSettings(tls_ca="nowhere.pem"))


async def test_a_broker_that_encrypts_is_trusted_by_its_authority(tmp_path: Path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "pair.pem")
    (tmp_path / "tls.conf").write_text(f'tls {{ cert_file: "{tmp_path}/pair.pem", key_file: "{tmp_path}/pair.pem" }}')
    with LocalNats(tmp_path / "nats", include=tmp_path / "tls.conf") as server:
        flags = {"bus.url": server.url.replace("nats://", "tls://"), "tls.ca": str(tmp_path / "ca.pem")}
        bus = await NatsBus.connect(bus_settings(load_settings(flags=flags, environment={}), "test"))
        assert await bus.depths() == {}
        await bus.close()


def test_authorities_that_cannot_be_are_named():
    flags = {"bus.url": "tls://127.0.0.1:1", "tls.ca": "/nowhere.pem"}
    with pytest.raises(ConfigError, match=r"tls\.ca: /nowhere\.pem: cannot be read"):
        bus_settings(load_settings(flags=flags, environment={}), "test")


async def test_connecting_again_changes_nothing(server: LocalNats):
    for _ in range(3):
        bus = await connect(server)
        await bus.take("w", 1)
        await bus.close()


async def test_other_bounds_are_refused_with_both_values(server: LocalNats):
    bus = await connect(server, namespace="bounds", queue_bound=8)
    with pytest.raises(TopologyMismatch, match=r"BOUNDS_Q.*max_msgs_per_subject is 8 at the broker, 9 here"):
        await connect(server, namespace="bounds", queue_bound=9)
    await bus.close()


async def test_another_ack_wait_is_refused(server: LocalNats):
    one = await connect(server, namespace="waits", ack_wait_s=1.0)
    await one.take("w", 1)
    two = await connect(server, namespace="waits", ack_wait_s=2.0)
    with pytest.raises(TopologyMismatch, match=r"worker-w.*ack_wait"):
        await two.take("w", 1)
    await one.close()
    await two.close()


async def test_what_an_operator_added_is_left_alone(server: LocalNats):
    bus = await connect(server, namespace="ops")
    client = await nats.connect(server.url)
    manager = client.jetstream()
    info = await manager.stream_info("OPS_RESULT")
    await manager.update_stream(info.config, max_bytes=50_000_000)
    again = await connect(server, namespace="ops")
    assert (await manager.stream_info("OPS_RESULT")).config.max_bytes == 50_000_000
    await client.close()
    await again.close()
    await bus.close()


async def test_namespaces_share_a_broker_and_nothing_else(server: LocalNats):
    one, two = await connect(server, namespace="one"), await connect(server, namespace="two")
    from bus_makers import lease, new_rid, questions

    from kev.bus.messages import Lane

    await one.enqueue(questions(new_rid(), 2, Lane("w", 0)))
    await one.announce(lease("w"))
    assert await two.depths() == {}
    assert not await two.take("w", 1)
    assert await two.fleet() == {}
    await one.close()
    await two.close()


async def test_a_broker_that_shall_encrypt_and_does_not_is_not_spoken_to(tmp_path: Path):
    """A password would go over in the clear."""
    with LocalNats(tmp_path / "nats") as server:
        settings = BusSettings(urls=(server.url.replace("nats://", "tls://"),), connect_timeout_s=1.0)
        async with asyncio.timeout(20):
            with pytest.raises(BusUnavailable, match="it does not encrypt"):
                await NatsBus.connect(settings)
