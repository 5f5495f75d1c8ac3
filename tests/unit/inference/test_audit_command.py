"""``kev audit`` on the command line, and the log of a worker as the settings want it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from audit_lab import asked
from inference_fakes import FakeBackend
from typer.testing import CliRunner, Result

from inference_svc.audit.log import AuditLog
from inference_svc.audit.trail import AuditedBackend, TrailOptions
from inference_svc.outcomes import Identity
from kev.app.cli.main import app
from kev.config.settings import InferenceSettings
from kev.wire.process import StartError

IDENTITY = Identity("w1", "model", "tokens", "fake", "fake-1", 128, 8, ("strict",))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    lab = asked(tmp_path / "w1.jsonl", options=TrailOptions())
    lab.close()
    return lab.path


def audit(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


def test_a_good_log(log: Path) -> None:
    done = audit(log)
    assert done.exit_code == 0, done.output
    assert "0 of other channels" in done.output
    assert "all as it should be" in done.output
    report = json.loads(audit(log, "--json").output)
    assert (report["passed"], report["cross"], report["faults"]) == (True, 0, [])


def test_one_wrong_page_ends_with_1(log: Path) -> None:
    lines = log.read_text().splitlines()
    for number, line in enumerate(lines):
        whole = json.loads(line)
        if len(whole["channels"]) > 1:
            whole["channels"][0]["pages"][-1] = whole["channels"][1]["pages"][-1]
            lines[number] = json.dumps(whole)
            break
    log.write_text("\n".join(lines) + "\n")
    done = audit(log)
    assert done.exit_code == 1
    assert f"WRONG line {number + 1}" in done.output
    assert "cells of another channel are visible" in done.output


def test_what_cannot_be_checked_ends_with_2(tmp_path: Path, log: Path) -> None:
    missing = audit(tmp_path / "none.jsonl")
    assert (missing.exit_code, "cannot be read" in missing.output) == (2, True)
    assert audit(log, "--draw", 9999, tmp_path / "a.png").exit_code == 2


def test_a_picture_is_drawn(tmp_path: Path, log: Path) -> None:
    pytest.importorskip("PIL")
    assert audit(log, "--draw", 2, tmp_path / "a.png").exit_code == 0
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_the_settings_say_whether_and_where(tmp_path: Path) -> None:
    backend = FakeBackend()
    off = AuditLog(InferenceSettings(), IDENTITY, lambda what, count: None, lambda: 0)
    assert off.around(backend, lambda channel: (frozenset(), frozenset())) is backend
    assert not off.alive
    settings = InferenceSettings(audit_log=str(tmp_path / "log"))
    on = AuditLog(settings, IDENTITY, lambda what, count: None, lambda: 0)
    assert isinstance(on.around(backend, lambda channel: (frozenset(), frozenset())), AuditedBackend)
    on.end()
    assert (tmp_path / "log" / "w1.jsonl").exists()


def test_a_folder_that_cannot_be_written_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match=r"inference\.audit_log: .* cannot be written"):
        AuditLog(
            InferenceSettings(audit_log=str(tmp_path / "file" / "log")), IDENTITY, lambda what, count: None, lambda: 0
        )
