"""Temporary folders: one that a killed process left is removed by the next start, one in use never."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kev.bus.nats.scratch import Scratch

OWNER = """
import sys
from kev.bus.nats.scratch import Scratch
scratch = Scratch("kev-try-")
(scratch.path / "store").mkdir()
print(scratch.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_a_killed_owners_folder_goes_at_the_next_start():
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        left = Path(owner.stdout.readline().strip())
        Scratch("kev-try-").close()
        assert (left / "store").is_dir(), "its owner lived"
        Scratch("kev-other-").close()
        owner.kill()
        owner.wait()
    assert (left / "store").is_dir()
    Scratch("kev-other-").close()
    assert (left / "store").is_dir(), "another prefix is another's"
    scratch = Scratch("kev-try-")
    assert not left.exists()
    scratch.close()


def test_two_of_one_process_live_side_by_side_and_close_removes_each():
    first, second = Scratch("kev-try-"), Scratch("kev-try-")
    assert first.path.is_dir()
    for scratch in (first, second, first):
        scratch.close()
    assert not first.path.exists()
    assert not second.path.exists()


def test_what_is_not_ours_to_judge_stays(tmp_path: Path):
    bare = tmp_path / "kev-try-bare"
    bare.mkdir()
    link = tmp_path / "kev-try-link"
    link.symlink_to(bare)
    Scratch("kev-try-").close()
    assert bare.is_dir()
    assert link.is_symlink()
