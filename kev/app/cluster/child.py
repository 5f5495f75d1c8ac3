"""One service of a local cluster as a child process: start, ready line, log, end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kev.bus.nats.exec_bound import bound_command
from kev.telemetry.logs import error_in
from kev.wire.process import read_ready

LINE_LIMIT = 1024 * 1024
Say = Callable[[str, str], None]
"""Takes a child's name and one line of its log."""


class ChildDied(Exception):
    """A child ended before it was ready; the text says which and why."""


@dataclass(slots=True)
class Spec:
    """What to run.

    Attributes:
        name: For people: ``router``, ``w1``.
        module: Run as ``python -m module``.
        flags: ``section.key`` -> value, passed as ``--set``.
        config: The ``--config`` file, or empty.
        drain_s: How long it may take to end after SIGTERM, seconds.
    """

    name: str
    module: str
    flags: dict[str, str] = field(default_factory=dict)
    config: str = ""
    drain_s: float = 10.0

    def command(self) -> list[str]:
        """The command line; the process dies with this one."""
        config = ["--config", self.config] if self.config else []
        flags = [word for path, value in self.flags.items() for word in ("--set", f"{path}={value}")]
        return bound_command(sys.executable, "-m", self.module, *config, *flags)


class Child:
    """One life of a service. Start it from the main thread's event loop."""

    def __init__(self, spec: Spec, say: Say) -> None:
        self.spec = spec
        self._say = say
        self._errors: deque[str] = deque(maxlen=20)
        self._ready: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        self._process: asyncio.subprocess.Process | None = None
        self._readers: tuple[asyncio.Task[None], ...] = ()

    @property
    def pid(self) -> int | None:
        """Process id once it was started."""
        return self._process.pid if self._process else None

    async def start(self) -> Mapping[str, str]:
        """Starts it and waits for its ready line.

        Returns:
            The facts of the ready line.

        Raises:
            ChildDied: it ended first.
        """
        self._process = process = await asyncio.create_subprocess_exec(
            *self.spec.command(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = (
            asyncio.create_task(self._read(process.stdout, self._out)),
            asyncio.create_task(self._read(process.stderr, self._err)),
        )
        ended = asyncio.create_task(self.ended())
        first: set[asyncio.Future[Any]] = {ended, self._ready}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if self._ready.done():
            return self._ready.result()
        raise ChildDied(f"{self.spec.name} did not start: {self._why(ended.result())}")

    async def ended(self) -> int:
        """Waits for its end and the end of its log; returns the exit code, negative for a signal."""
        assert self._process is not None
        code = await self._process.wait()
        await asyncio.wait(self._readers, timeout=1.0)
        return code

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL when it takes too long; waits until it is gone."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self.spec.drain_s)
        except TimeoutError:
            self._say(self.spec.name, f"does not end within {self.spec.drain_s:g} s: killed")
            process.kill()
        finally:
            if process.returncode is None:
                process.kill()
        await self.ended()

    def _why(self, code: int) -> str:
        return "; ".join(self._errors) or how_it_ended(code)

    def _out(self, line: str) -> None:
        facts = read_ready(line)
        if facts is None:
            self._say(self.spec.name, line)
        elif not self._ready.done():
            self._ready.set_result(facts)

    def _err(self, line: str) -> None:
        """Before it is ready, errors are kept: they become the one line that says why it did not start."""
        error = None if self._ready.done() else error_in(line)
        if error is not None:
            self._errors.append(error)
        else:
            self._say(self.spec.name, line)

    async def _read(self, stream: asyncio.StreamReader, take: Callable[[str], None]) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # longer than the limit: dropped, the stream goes on
                continue
            if not line:
                return
            take(line.decode(errors="replace").rstrip())


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"
