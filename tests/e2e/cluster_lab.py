"""Real processes for the end-to-end tests: `kev up` as a user starts it, or services one by one."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kev.bus.nats.exec_bound import bound_command
from kev.wire.process import read_ready

ROOT = Path(__file__).resolve().parents[2]
KEV = [sys.executable, "-m", "kev.app.cli.main"]
START_S = 180.0
SMALL = {"core.max_context": "512", "router.channel_pool_size": "8", "core.threads": "1"}
"""Settings that start fast; answers do not depend on them."""


def sets(flags: Mapping[str, str]) -> list[str]:
    """Flags of a command line."""
    return [word for path, value in flags.items() for word in ("--set", f"{path}={value}")]


class Process:
    """A running program with its output read in the background; dies with the test run."""

    def __init__(self, *command: str) -> None:
        self._popen = subprocess.Popen(
            bound_command(*command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        self.lines: list[str] = []
        self._ready: queue.Queue[Mapping[str, str] | None] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self._popen.stdout, self._popen.stderr)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ready(self, timeout: float = START_S) -> Mapping[str, str]:
        """The facts of its ready line."""
        facts = self._ready.get(timeout=timeout)
        assert facts is not None, self.text()
        return facts

    def text(self) -> str:
        """All that it said so far."""
        return "\n".join(self.lines)

    def wait_for_line(self, part: str, timeout: float = START_S) -> None:
        """Waits until a line of its output holds ``part``."""
        until = time.monotonic() + timeout
        while not any(part in line for line in list(self.lines)):
            assert time.monotonic() < until, f"no line with {part!r} in:\n{self.text()}"
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9."""
        self._popen.kill()
        self._popen.wait()

    def stop(self, number: int = signal.SIGTERM, timeout: float = 60.0) -> int:
        """Sends a signal and waits for the end; returns the exit code."""
        self._popen.send_signal(number)
        return self.ended(timeout)

    def ended(self, timeout: float = START_S) -> int:
        """Waits for its end; returns the exit code."""
        code = self._popen.wait(timeout)
        for reader in self._readers:
            reader.join(5)
        return code

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self._popen.poll() is None:
            self._popen.terminate()
            try:
                self._popen.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def _read(self, stream: Iterator[str]) -> None:
        for line in stream:
            self.lines.append(line.rstrip("\n"))
            if stream is self._popen.stdout and (facts := read_ready(line)) is not None:
                self._ready.put(facts)
        if stream is self._popen.stdout:
            self._ready.put(None)


def kev_process(*arguments: str) -> Process:
    """A ``kev`` command that keeps running."""
    return Process(*KEV, *arguments)


def kev_run(*arguments: str, timeout: float = 300.0, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """A ``kev`` command run to its end."""
    return subprocess.run(
        [*KEV, *arguments], capture_output=True, text=True, timeout=timeout, cwd=ROOT, input=stdin, check=False
    )


@contextmanager
def service(module: str, **flags: str) -> Iterator[Process]:
    """One service; ``bus__url=…`` sets ``bus.url``."""
    named = {key.replace("__", "."): value for key, value in flags.items()}
    with Process(sys.executable, "-m", module, *sets({**SMALL, **named})) as process:
        yield process


def children_of(pid: int) -> dict[int, str]:
    """Process ids and command lines of the direct children of a process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
        if parent == pid:
            found[int(entry.name)] = command
    return found


def child_with(pid: int, part: str) -> int:
    """The child whose command line holds ``part``."""
    (found,) = [child for child, command in children_of(pid).items() if part in command]
    return found


def gone(pid: int, timeout: float = 30.0) -> bool:
    """Whether a process that is not our child ends in time."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
