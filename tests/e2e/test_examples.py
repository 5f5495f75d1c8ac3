"""The three example programs run as a user runs them, in a short form, and print what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


def _run(repository: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(repository), "KEV_TEST_DATA": ""}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_extraction(repository: Path, default_model: Path) -> None:
    told = _run(repository, "examples/extraction.py")
    for name in ("harbour", "review", "report", "sentiment", "9 answers"):
        assert name in told


def test_customer_service(repository: Path, default_model: Path) -> None:
    told = _run(repository, "examples/customer_service.py", "--limit", "3")
    assert "of 3 sorted right" in told


def test_evaluation(repository: Path, default_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "two.jsonl"
    file.write_text('{"text": "What is 2 + 2?", "answer": "4"}\n{"text": "What is 3 + 4?", "answer": "7"}\n')
    short = ("--data", str(file), "--alone", "1", "--max-tokens", "12")
    told = _run(repository, "examples/evaluation.py", *short)
    for name in ("accuracy", "throughput", "speed-up", "1 of 1 answers are the same"):
        assert name in told
