"""Context pools in a cluster of real processes: computed once per worker, and the audit log shows who saw what."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster_lab import SMALL, kev_process, kev_run, sets

import kev
from kev.domain.result import SlotResult

pytestmark = [pytest.mark.model, pytest.mark.timeout(1500)]
WORKERS = ("w1", "w2")
RULES = "Answer in one word."


def town(houses: int) -> str:
    """A document of eleven tokens a house, and some."""
    return "".join(
        f"House {100 + number} has a {('red', 'blue', 'green')[number % 3]} door.\n" for number in range(houses)
    )


def records(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def rows_of(log: Path) -> dict[bool, int]:
    """Rows by whether they are of stored context (their channel is negative) or of a question."""
    rows: dict[bool, int] = defaultdict(int)
    for record in records(log):
        for part in record["channels"]:
            rows[part["channel"] < 0] += part["rows"]
    return rows


def tampered(log: Path) -> Path:
    """A copy of the file in which one channel's table names a page of another one; the rest is as it was."""
    found = records(log)
    one, other, *_ = next(
        parts for record in found if len(parts := [part for part in record["channels"] if part["channel"] >= 0]) > 1
    )
    one["pages"][-1] = other["pages"][-1]
    copy = log.with_suffix(".tampered.jsonl")
    copy.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in found))
    return copy


def audit(log: Path, *flags: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of `kev audit`."""
    done = kev_run("audit", str(log), "--json", *flags, timeout=600)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@contextmanager
def cluster(logs: Path, **more: str) -> Iterator[kev.Client]:
    """`kev up` with two workers that log all they do; it has ended, and the logs are whole, when this is left."""
    every = {
        "inference.audit_log": str(logs),
        "inference.audit_log_tokens": "true",
        "inference.audit_log_logits": "true",
    }
    arguments = sets({**SMALL, "isolation.level": "loose", "router.strategy": "round_robin", **every, **more})
    with kev_process("up", "--workers", str(len(WORKERS)), "--free-ports", *arguments) as process:
        with kev.Client(process.ready()["router"]) as client:
            yield client
        assert process.stop() == 0


def of_worker(results: Iterable[SlotResult], worker: str) -> list[SlotResult]:
    return [result for result in results if result.audit.worker_id == worker]


@pytest.mark.parametrize(("houses", "count"), [(8, 8), pytest.param(370, 50, marks=pytest.mark.slow)])
def test_a_pool_is_computed_once_per_worker_and_the_audit_is_green(
    default_model: Path, tmp_path: Path, houses: int, count: int
) -> None:
    long = houses > 100
    context = {"core.max_context": "4608"} if long else {}
    questions = [f"What colour is the door of house {100 + number % houses}?" for number in range(count)]
    options: dict[str, Any] = {"isolation": "loose", "context_pool": "town", "prefix": RULES}
    with cluster(tmp_path, **context) as client:
        document = client.create_context("town", town(houses)).tokens
        assert document > (4000 if long else 80)
        results = client.wait(client.submit(questions, max_tokens=4, timeout_ms=600_000, **options), timeout=600)
    assert [result.status for result in results] == ["answered"] * count, results
    for worker in WORKERS:
        log, mine = tmp_path / f"{worker}.jsonl", of_worker(results, worker)
        assert mine, "a worker had no question"
        rows = rows_of(log)
        own = sum(result.audit.prompt_tokens - result.audit.shared_tokens for result in mine)
        stored = min(result.audit.shared_tokens for result in mine)
        print(f"{worker}: {len(mine)} answers; rows of stored context {rows[True]}, of questions {rows[False]}")
        assert document < stored < document + 30, "pool and batch prefix"
        assert rows[True] == stored, "each token of stored context was computed once"
        assert rows[False] == own + sum(result.tokens - 1 for result in mine)
        computed = worker == WORKERS[0] and not long  # again, with the model
        code, report = audit(log, *(sets(SMALL) if computed else ["--layouts"]))
        assert (code, report["passed"], report["cross"], report["logits_different"]) == (0, True, 0, 0), report
        assert report["granted"] > 0
        assert report["logits_equal"] == (sum(result.tokens for result in mine) if computed else 0)
        assert report["logits_skipped"] == 0
    code, report = audit(tampered(log), "--layouts")
    assert (code, report["passed"], report["cross"] > 0) == (1, False, True), report
