# ruff: noqa: T201 - a script speaks on the terminal
"""Runs the project's checks and tests step by step, and says how long each took.

``python scripts/suite.py [lint] [test] [long]``; exit code 1 if a step failed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
KINDS = ("unit", "contract", "integration", "e2e")

LINT: tuple[tuple[str, list[str]], ...] = (
    ("ruff check", ["ruff", "check", "."]),
    ("ruff format", ["ruff", "format", "--check", "."]),
    ("mypy", ["mypy"]),
    ("import rules", ["lint-imports"]),
    ("proto style", ["buf", "lint", "proto"]),
    ("stubs fresh", ["python", "proto/generate.py", "--check"]),
)
TESTS = tuple((f"{kind} tests", ["python", "-m", "pytest", "-q", f"tests/{kind}"]) for kind in KINDS)
LONG = (("long tests", ["python", "-m", "pytest", "-q", "-m", "slow", "--run-slow", "tests"]),)
SETS = {"lint": LINT, "test": TESTS, "long": LONG}


def run(name: str, command: list[str]) -> tuple[str, int, float]:
    """One step: its name, exit code and seconds."""
    print(f"\n== {name}: {' '.join(command)}", flush=True)
    began = time.monotonic()
    code = subprocess.run([str(BIN / command[0]), *command[1:]], cwd=ROOT, check=False).returncode
    return name, code, time.monotonic() - began


def main() -> int:
    """Runs the sets named on the command line."""
    names = sys.argv[1:] or ["lint", "test"]
    if unknown := [name for name in names if name not in SETS]:
        print(f"unknown: {', '.join(unknown)}; allowed: {', '.join(SETS)}", file=sys.stderr)
        return 2
    done = [run(*step) for name in names for step in SETS[name]]
    print()
    for step, code, seconds in done:
        print(f"{'ok    ' if code == 0 else 'FAILED'} {step:20} {seconds:7.1f} s")
    failed = [step for step, code, _ in done if code]
    total = sum(seconds for *_, seconds in done)
    print(f"{'FAILED: ' + ', '.join(failed) if failed else 'All green'} in {total / 60:.1f} minutes ({total:.0f} s).")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
