# ruff: noqa: T201 - a script speaks on the terminal
"""Builds and tests the compose deployment from a clean clone of the last commit: ``make compose-test``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """The exit code of the tests; arguments go to pytest."""
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    if changed:
        print("note: the clone holds the last commit; these changes are not in it:\n" + changed, flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kev-clone-") as folder:
        clone = Path(folder) / "kev"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
        clone.parent.chmod(0o755)  # containers read the configuration as ordinary users
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-v",
            "-s",
            "-p",
            "no:cacheprovider",
            "tests/containers",
            *sys.argv[1:],
        ]
        done = subprocess.run(command, cwd=clone, env=os.environ | {"PYTHONPATH": str(clone)}, check=False)
    print(f"compose-test: {'passed' if done.returncode == 0 else 'FAILED'} in {time.monotonic() - began:.0f} s")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
