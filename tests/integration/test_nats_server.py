"""The broker of ``kev up`` and of the tests: a child process that never outlives its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kev.bus.messages import Manifest, SlotPlan
from kev.bus.nats import NatsBus
from kev.bus.nats.server import LocalNats
from kev.bus.settings import BusSettings
from kev.domain.errors import BusUnavailable
from kev.domain.question import MAX_QUESTIONS, Isolation, ResultMode

PARENT = """
import sys
from pathlib import Path
from kev.bus.nats.server import LocalNats
server = LocalNats(Path(sys.argv[1])).start()
print(server.pid, server.port, flush=True)
sys.stdin.read()
"""


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            return connection.recv(4) == b"INFO"
    except OSError:
        return False


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_it_is_ready_when_start_returns_and_gone_when_stop_returns(tmp_path: Path):
    server = LocalNats(tmp_path).start()
    pid = server.pid
    assert answers(server.port)
    server.stop()
    server.stop()
    assert not answers(server.port)
    assert not is_running(pid)
    assert (tmp_path / "nats.log").read_text()


def test_it_comes_back_on_its_port(tmp_path: Path):
    with LocalNats(tmp_path) as server:
        port = server.port
        server.stop(kill=True)
        server.start()
        assert server.port == port
        assert answers(port)


def test_two_at_once_take_different_ports(tmp_path: Path):
    with LocalNats(tmp_path / "a") as one, LocalNats(tmp_path / "b") as two:
        assert one.port != two.port
        assert one.url == f"nats://127.0.0.1:{one.port}"


def test_a_temporary_directory_is_removed():
    with LocalNats() as server:
        directory = server.directory
        assert directory.exists()
    assert not directory.exists()


def test_every_write_may_reach_the_disk_first(tmp_path: Path):
    with LocalNats(tmp_path, sync_always=True) as server:
        assert answers(server.port)


async def test_the_manifest_of_a_full_batch_with_long_labels_fits(tmp_path: Path):
    slots = tuple(SlotPlan(slot, 2**42, "\U0001f642" * 256, "background") for slot in range(MAX_QUESTIONS))
    manifest = Manifest("0" * 32, "r1", "", "d" * 64, 0, 0, Isolation.STRICT, ResultMode.SLOT_MAP, slots)
    with LocalNats(tmp_path) as server:
        bus = await NatsBus.connect(BusSettings(urls=(server.url,)))
        try:
            assert (await bus.open_request(manifest)).manifest == manifest
        finally:
            await bus.close()


def test_a_busy_port_is_one_clear_line(tmp_path: Path):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(BusUnavailable, match=f"port {port} of 127.0.0.1 is in use") as error:
            LocalNats(tmp_path, port=port).start()
    assert "\n" not in str(error.value)


def test_a_store_that_cannot_be_kept_there_is_one_clear_line(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nobody")):
        with pytest.raises(BusUnavailable, match=f"^the broker cannot keep its store in {place}: ") as error:
            LocalNats(place).start()
        assert "\n" not in str(error.value)


def test_a_missing_program_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BusUnavailable, match="not installed"):
        LocalNats(tmp_path / "store").start()


@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's parent-death signal")
def test_it_dies_with_its_parent(tmp_path: Path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid, port = map(int, parent.stdout.readline().split())
    assert answers(port)
    watch = os.pidfd_open(pid)
    try:
        parent.send_signal(signal.SIGKILL)
        parent.wait(timeout=10)
        import select

        gone, _, _ = select.select([watch], [], [], 10)
    finally:
        os.close(watch)
        parent.stdout.close()
        if parent.stdin is not None:
            parent.stdin.close()
    assert gone
    assert not answers(port)
