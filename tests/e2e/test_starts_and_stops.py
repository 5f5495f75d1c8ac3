"""Starting and stopping for real: clean ends, nothing left behind, and one clear line when something is wrong."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster_lab import ROOT, SMALL, children_of, gone, kev_process, kev_run, sets

import kev

pytestmark = [pytest.mark.model, pytest.mark.timeout(400)]


@pytest.fixture
def busy_port() -> object:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield str(taken.getsockname()[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_kev_up_stops_cleanly(default_model: Path, number: int) -> None:
    with kev_process("up", "--free-ports", *sets(SMALL)) as process:
        facts = process.ready()
        assert set(facts) >= {"router", "aggregator", "nats", "workers"}
        children = children_of(process.pid)
        assert len(children) == 4
        with kev.Client(facts["router"]) as client:
            assert client.wait(client.submit("Hello?", max_tokens=2), timeout=120)[0].ok
        assert process.stop(number) == 0
        assert all(gone(child) for child in children)
        assert "Traceback" not in process.text()


def test_kev_up_killed_leaves_nothing_behind(default_model: Path) -> None:
    with kev_process("up", "--free-ports", *sets(SMALL)) as process:
        process.ready()
        children = children_of(process.pid)
        assert len(children) == 4
        process.kill()
        assert all(gone(child) for child in children)


def test_the_demonstration_runs_twice_at_a_time(default_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "few.jsonl"
    file.write_text(
        '{"id": "a", "text": "Name a river.", "max_tokens": 6}\n{"id": "b", "text": "你好", "max_tokens": 6}'
    )
    command = [sys.executable, "-m", "kev.app.demo", str(file), *sets(SMALL)]

    def demo(_: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False)

    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(demo, range(2)):
            assert done.returncode == 0, done.stderr
            assert "2 questions, 2 answered" in done.stdout
            assert "Audit" in done.stdout
            assert "Stopped." in done.stdout


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a failed command wrote."""
    assert done.returncode != 0
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize("command", [["up"], ["serve", "--port", "0"], ["run", "-"], ["ask", "x"]])
def test_a_bad_key_and_a_missing_model_are_one_line(command: list[str]) -> None:
    assert "core.precison: unknown key; did you mean core.precision?" in one_line(
        kev_run(*command, "--set", "core.precison=fp32", stdin="x")
    )
    assert "core.model_path: '/no/model.gguf' does not exist" in one_line(
        kev_run(*command, "--set", "core.model_path=/no/model.gguf", stdin="x")
    )


def test_a_busy_port_is_one_line(default_model: Path, busy_port: str) -> None:
    where = f"127.0.0.1:{busy_port}"
    assert one_line(kev_run("serve", "--port", busy_port)) == (
        f"error: cannot listen on {where}: Address already in use"
    )
    free = {
        **SMALL,
        "bus.url": "nats://127.0.0.1:0",
        "router.listen": "127.0.0.1:0",
        "aggregator.listen": "127.0.0.1:0",
    }
    for key, name in (("router.listen", "router"), ("aggregator.listen", "aggregator")):
        line = one_line(kev_run("up", *sets({**free, key: where, "log.level": "error"})))
        assert line == f"error: {name} did not start: cannot listen on {where}: Address already in use"
    line = one_line(kev_run("up", *sets({**free, "bus.url": f"nats://{where}"})))
    assert f"port {busy_port} of 127.0.0.1 is in use" in line


@pytest.mark.parametrize("module", ["router_svc", "inference_svc", "aggregator_svc"])
def test_a_service_without_a_broker_says_so_in_one_line(default_model: Path, module: str, busy_port: str) -> None:
    url = "nats://127.0.0.1:1"
    command = [sys.executable, "-m", module, *sets({**SMALL, "bus.url": url, "log.level": "error"})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)
    assert "127.0.0.1:1" in one_line(done)
    assert "Traceback" not in done.stderr


def test_a_cluster_that_does_not_answer_is_one_line() -> None:
    assert "no answer" in one_line(kev_run("ask", "x", "--router", "127.0.0.1:1"))
    assert "no answer" in one_line(kev_run("run", "-", "--router", "127.0.0.1:1", stdin="x"))


def test_ctrl_c_ends_a_run(default_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    file.write_text('{"text": "Tell me a long story about the sea.", "max_tokens": 400}\n' * 4)
    with kev_process("run", str(file), *sets({**SMALL, "log.level": "debug"})) as process:
        process.wait_for_line("self-test passed")
        assert process.stop(signal.SIGINT) == 130
        assert "Traceback" not in process.text()


def test_stdout_that_closes_early_is_no_crash(default_model: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "kev.app.cli.main", "run", "-", "--max-tokens", "2", *sets(SMALL)]
    done = subprocess.run(
        command, stdout=write, stderr=subprocess.PIPE, text=True, input="Hello?", timeout=200, cwd=ROOT, check=False
    )
    os.close(write)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
