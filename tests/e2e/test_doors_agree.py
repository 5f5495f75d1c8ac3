"""The same questions get the same answers through every door: files, single mode, HTTP, one process or a cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from cluster_lab import ROOT, SMALL, kev_process, kev_run, sets
from conftest import Up

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]
EXAMPLES = "examples/questions.jsonl"
FP32 = sets({**SMALL, "core.precision": "fp32"})
FEW = 12
"""Tokens of an answer: enough to differ, few enough for a test. The examples' own limits go over it."""


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples with short answers."""
    lines = (ROOT / EXAMPLES).read_text(encoding="utf-8").splitlines()
    path = tmp_path_factory.mktemp("questions") / "short.jsonl"
    path.write_text("\n".join(json.dumps({**json.loads(line), "max_tokens": FEW}) for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def batched(questions: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What `kev run` writes."""
    out = tmp_path_factory.mktemp("results") / "batched.jsonl"
    done = kev_run("run", str(questions), "--mode", "batched", "--out", str(out), *FP32)
    assert done.returncode == 0, done.stderr
    return out.read_bytes()


def test_single_and_batched_write_byte_equal_files(questions: Path, batched: bytes, tmp_path: Path) -> None:
    out = tmp_path / "single.jsonl"
    done = kev_run("run", str(questions), "--mode", "single", "--out", str(out), *FP32)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == batched
    assert len(batched.splitlines()) >= 16


def test_a_cluster_writes_the_same_file(up: Up, questions: Path, batched: bytes, tmp_path: Path) -> None:
    out, audit = tmp_path / "cluster.jsonl", tmp_path / "audit.jsonl"
    done = kev_run("run", str(questions), "--router", up.router, "--out", str(out), "--audit", str(audit))
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == batched
    audits = [json.loads(line)["audit"] for line in audit.read_text(encoding="utf-8").splitlines()]
    assert {entry["worker_id"] for entry in audits} == {"w1", "w2"}
    assert all(entry["channel"] and entry["attempts"] >= 1 and entry["bucket"] >= 0 for entry in audits)


@contextmanager
def served(*arguments: str) -> Iterator[httpx.Client]:
    """`kev serve` and a client in front of it."""
    with kev_process("serve", "--port", "0", *arguments) as process:
        address = process.ready()["address"]
        with httpx.Client(base_url=f"http://{address}", timeout=300) as client:
            yield client


def ask_over_http(client: httpx.Client, questions: Path) -> list[dict[str, Any]]:
    queries = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
    reply = client.post("/v1/query", json={"queries": queries, "isolation": "strict", "timeout_ms": 300_000})
    assert reply.status_code == 200, reply.text
    results: list[dict[str, Any]] = reply.json()["results"]
    return results


def check_same(results: list[dict[str, Any]], batched: bytes) -> None:
    expected = [json.loads(line) for line in batched.splitlines()]
    assert [(result["slot"], result["reason"], result["detail"]) for result in results if result["reason"]] == []
    for key in ("slot", "id", "status", "finish_reason", "text"):
        assert [result[key] for result in results] == [record[key] for record in expected]
    assert [result["tokens"] for result in results] == [record["completion_tokens"] for record in expected]


def test_http_in_one_process_answers_like_a_file_run(questions: Path, batched: bytes) -> None:
    with served("--config", "kev.yaml", *FP32) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        check_same(ask_over_http(client, questions), batched)
        bad = client.post("/v1/query", json={"queries": [{"text": "a", "max_tokens": "many"}]})
        assert (bad.status_code, bad.json()["error"]["fields"][0]["field"]) == (422, "queries[0].max_tokens")


def test_http_in_front_of_a_cluster_answers_the_same(up: Up, questions: Path, batched: bytes) -> None:
    with served("--router", up.router) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        check_same(ask_over_http(client, questions), batched)
        assert client.get("/v1/query/nobody").status_code == 404
        assert client.post("/v1/query", json={"queries": []}).status_code == 422
        weaker = client.post("/v1/query", json={"queries": ["a"], "isolation": "loose"})
        assert weaker.json()["error"]["reason"] == "NOT_SERVED"


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_600_customer_questions_single_and_batched(tmp_path: Path) -> None:
    folder = os.environ.get("KEV_TEST_DATA", "")
    file = Path(folder) / "banking77_600.jsonl"
    if not folder or not file.is_file():
        pytest.skip("set KEV_TEST_DATA to a folder with banking77_600.jsonl")
    flags = ["--max-tokens", "24", *sets({"core.precision": "fp32", "core.max_context": "512"})]
    for mode in ("single", "batched"):
        done = kev_run("run", str(file), "--mode", mode, "--out", str(tmp_path / mode), *flags, timeout=3600)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "single").read_bytes() == (tmp_path / "batched").read_bytes()
