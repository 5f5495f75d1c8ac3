"""The compose deployment, from its start to its end. The tests build on each other and run in this order."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from compose_stack import KEV_SERVICES, ROOT, SERVICES, Stack, docker, wait_for

from kev.client import Client

pytestmark = pytest.mark.containers
HUNDRED = [f"What is {number} plus {number + 1}? Answer with the number." for number in range(100)]
LONG_MS = 540_000


def ask(stack: Stack, questions: list[str], max_tokens: int = 8) -> list[object]:
    with Client(stack.router) as client:
        return client.wait(client.submit(questions, max_tokens=max_tokens, timeout_ms=LONG_MS))


def test_every_service_is_healthy_after_one_command(stack: Stack):
    everybody = wait_for(
        stack.health, lambda found: all(set(states) == {"healthy"} for states in found.values()), "health"
    )
    assert set(everybody) == set(SERVICES)
    (secrets,) = stack.containers("secrets", everything=True)
    assert docker("inspect", "--format", "{{.State.ExitCode}}", secrets) == "0"


def test_sizes_are_told_and_router_and_aggregator_hold_no_torch(stack: Stack, capsys: pytest.CaptureFixture[str]):
    sizes = {}
    for service in KEV_SERVICES:
        (container,) = stack.containers(service)
        sizes[service] = int(_size(container)) / 1e6
    with capsys.disabled():
        print("\nimage sizes, MB: " + ", ".join(f"{name} {size:.0f}" for name, size in sizes.items()))
    look = "import importlib.util as u; print([n for n in ('torch', 'inference_svc') if u.find_spec(n)])"
    for service in ("router", "aggregator", "gateway"):
        (container,) = stack.containers(service)
        assert docker("exec", container, "python", "-c", look) == "[]", service
    assert sizes["router"] < sizes["inference"] / 2


def _size(container: str) -> str:
    return docker("image", "inspect", "--format", "{{.Size}}", docker("inspect", "--format", "{{.Image}}", container))


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_is_no_root_and_cannot_write_its_root(stack: Stack, service: str):
    (container,) = stack.containers(service)
    assert docker("exec", container, "id", "-u") != "0"
    assert docker("inspect", "--format", "{{.HostConfig.ReadonlyRootfs}}", container) == "true"
    assert docker("inspect", "--format", "{{.HostConfig.CapDrop}}", container) == "[ALL]"
    assert docker("inspect", "--format", "{{.HostConfig.Memory}}", container) != "0"


def test_no_password_is_in_the_open(stack: Stack):
    """Neither in a container's settings nor in the checkout; and each service sees its own only."""
    for service in SERVICES:
        (container,) = stack.containers(service)
        assert "PASSWORD=" not in docker("inspect", "--format", "{{.Config.Env}}", container)
    (router,) = stack.containers("router")
    own = docker("exec", router, "cat", "/run/kev/password")
    assert len(own) > 60
    assert docker("exec", router, "ls", "/run/kev") == "password"
    (worker,) = stack.containers("inference")
    assert docker("exec", worker, "cat", "/run/kev/password") != own


def test_a_client_gets_a_hundred_answers_to_a_hundred_questions(stack: Stack):
    results = ask(stack, HUNDRED)
    assert [result.slot for result in results] == list(range(100))
    assert Counter(result.status for result in results) == {"answered": 100}
    assert all(result.text for result in results)


def test_kev_run_answers_a_file_of_a_hundred_questions(stack: Stack, tmp_path: Path):
    lines = (ROOT / "examples" / "questions.jsonl").read_text().splitlines()
    asked = [json.loads(line) | {"id": f"{at}", "max_tokens": 6} for at, line in enumerate(lines * 5)]
    file, out = tmp_path / "questions.jsonl", tmp_path / "results.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in asked[:100]))
    kev = [sys.executable, "-c", "from kev.app.cli.main import main; main()"]
    command = [*kev, "run", "--router", stack.router, str(file), "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert len(out.read_text().splitlines()) == 100


def test_plain_http_answers_too(stack: Stack):
    body = json.dumps({"queries": ["What is the capital of France?"], "max_tokens": 8}).encode()
    url = f"http://{stack.address('gateway', 8765)}/v1/query"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as reply:
        (result,) = json.load(reply)["results"]
    assert result["status"] == "answered"


def test_three_workers_share_the_questions(stack: Stack):
    stack.up(workers=3)
    wait_for(lambda: stack.number("max(kev_router_workers)"), lambda found: found == 3, "workers in the fleet")
    results = ask(stack, HUNDRED)
    workers = Counter(result.audit.worker_id for result in results)
    assert Counter(result.status for result in results) == {"answered": 100}
    assert len(workers) == 3, workers
    assert min(workers.values()) >= 10, workers


def test_every_replica_is_scraped(stack: Stack):
    wanted = {name: ["up"] for name in ("router", "aggregator", "gateway", "prometheus")} | {"inference": ["up"] * 3}
    wait_for(stack.targets, lambda found: found == wanted, "targets")


def test_a_worker_killed_in_mid_batch_loses_nothing(stack: Stack):
    questions = [f"Tell me a short story about the number {number}." for number in range(120)]
    with Client(stack.router) as client:
        request = client.submit(questions, max_tokens=24, timeout_ms=LONG_MS)
        some = wait_for(
            lambda: client.wait(request, 0.1),
            lambda found: sum(result.status == "answered" for result in found) >= 5,
            "first answers",
        )
        assert sum(result.status == "answered" for result in some) < 100, "the batch was over before the kill"
        victim = stack.containers("inference")[0]
        name = docker("inspect", "--format", "{{.Config.Hostname}}", victim)
        docker("kill", victim)
        results = client.wait(request)
    assert [result.slot for result in results] == list(range(120))
    assert Counter(result.status for result in results) == {"answered": 120}
    again = [result for result in results if result.attempt > 1]
    print(f"killed {name}: {len(again)} questions were run again, by { ({r.audit.worker_id for r in again}) }")
    assert name not in {result.audit.worker_id for result in again}
