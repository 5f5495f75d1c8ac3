"""A broker of our own on this machine: the real ``nats-server`` as a child process."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import IO

from kev.bus.nats.exec_bound import bound_command
from kev.bus.nats.scratch import Scratch
from kev.domain.errors import BusUnavailable

_LISTENING = re.compile(r"Listening for client connections on .*:(\d+)")
_READY = "Server is ready"
_KEPT_LINES = 20
MAX_PAYLOAD = "8MB"
"""The manifest of a full batch with long labels is larger than the server's own default of 1 MB."""


def find_server() -> str:
    """Path of the ``nats-server`` program: beside this Python, else on the PATH.

    Raises:
        BusUnavailable: there is none.
    """
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("nats-server")
    if found is None:
        raise BusUnavailable("nats-server is not installed: pip install 'kev-serving[local]'")
    return found


class LocalNats:
    """A ``nats-server`` on loopback with JetStream and a file store.

    It dies with this process, also when this process is killed. Start it from
    the main thread (see ``exec_bound``). A context manager starts and stops it.

    Args:
        directory: Holds store, configuration and log; kept at the end. None
            takes a temporary one, which is removed at the end, or by the next
            start of anybody's when this process is killed.
        port: 0 takes a free one; the same again after a restart.
        sync_always: Every write reaches the disk before it is acknowledged, so
            that also a power cut loses nothing; slower.
        include: A file of more configuration, e.g. users and their permissions.
        start_timeout_s: Longest wait until it is ready.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        port: int = 0,
        sync_always: bool = False,
        include: Path | None = None,
        start_timeout_s: float = 20.0,
    ) -> None:
        self._temporary = None if directory else Scratch("kev-nats-")
        self.directory = directory or (self._temporary.path if self._temporary else Path())
        self.port = port
        self._sync_always = sync_always
        self._include = include
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._ready = threading.Event()
        self._lines: list[str] = []

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process else None

    def start(self) -> LocalNats:
        """Starts the server and waits until it is ready.

        Raises:
            BusUnavailable: in one line, why it did not start (e.g. the port is in use).
        """
        config = self.directory / "nats.conf"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            config.write_text(self._config())
        except OSError as error:
            raise BusUnavailable(f"the broker cannot keep its store in {self.directory}: {error.strerror}") from None
        self._ready.clear()
        self._lines.clear()
        self._process = subprocess.Popen(
            bound_command(find_server(), "-c", str(config)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr,), daemon=True)
        self._reader.start()
        self._await_ready()
        return self

    def stop(self, *, kill: bool = False) -> None:
        """Ends the server, at once and without goodbye if ``kill``; waits until it is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join(timeout=5)

    def reload(self) -> None:
        """Makes the running server read its configuration again."""
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)

    def close(self) -> None:
        """Stops the server and removes a temporary directory."""
        self.stop()
        if self._temporary is not None:
            self._temporary.close()

    def __enter__(self) -> LocalNats:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _config(self) -> str:
        """The server's configuration; strings are quoted as JSON, which its format reads."""
        sync = "  sync_interval: always\n" if self._sync_always else ""
        store = json.dumps(str(self.directory / "store"))
        include = f"include {json.dumps(os.path.relpath(self._include, self.directory))}\n" if self._include else ""
        return (
            f"listen: 127.0.0.1:{self.port or -1}\nmax_payload: {MAX_PAYLOAD}\n"
            f"jetstream {{\n  store_dir: {store}\n{sync}}}\n{include}"
        )

    def _read(self, stream: IO[str]) -> None:
        """Reads the server's log to its end, so that it can always write; keeps it in a file."""
        with stream, open(self.directory / "nats.log", "a") as log:
            for line in stream:
                log.write(line)
                log.flush()
                self._lines[:] = [*self._lines[1 - _KEPT_LINES :], line.strip()]
                if (found := _LISTENING.search(line)) is not None:
                    self.port = int(found[1])
                if _READY in line:
                    self._ready.set()
        self._ready.set()

    def _await_ready(self) -> None:
        in_time = self._ready.wait(self._start_timeout_s)
        if in_time and any(_READY in line for line in self._lines):
            return
        self.stop(kill=True)
        raise BusUnavailable(self._why(in_time))

    def _why(self, in_time: bool) -> str:
        text = " ".join(self._lines)
        if "address already in use" in text:
            return f"nats-server: port {self.port} of 127.0.0.1 is in use already"
        if not in_time:
            return f"nats-server was not ready after {self._start_timeout_s:g} seconds"
        fatal = [line.split("[FTL]")[-1].strip() for line in self._lines if "[FTL]" in line]
        return f"nats-server did not start: {(fatal or self._lines or ['no output'])[-1]}"
