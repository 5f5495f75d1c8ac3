"""Tries schemas and expressions in a process of their own, before they are compiled where answers are computed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from typing import IO

import msgspec

from inference_svc.grammars.library import Words
from inference_svc.grammars.port import Unusable
from inference_svc.grammars.trial_child import HEAD, Task, Verdict, write_frame
from kev.domain.question import Constraint

START_S = 60.0
WALL_PER_CPU = 15.0
"""A busy machine may give the process a small share of its time."""
TOO_COMPLEX = "too_complex"


class Trial:
    """Used from one thread. The process starts with the first constraint and again after it was lost.

    Args:
        words: The vocabulary.
        seconds: Processor time that one constraint may take.
    """

    def __init__(self, words: Words, seconds: float) -> None:
        self._words = words
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def check(self, constraint: Constraint) -> None:
        """Tries a constraint.

        Raises:
            Unusable: it is refused, took too long, or ended the process.
        """
        process = self._process if self._process and self._process.poll() is None else self._start()
        verdict = _exchange(process, Task(constraint, self._seconds), self._seconds * WALL_PER_CPU)
        if verdict is None:
            self.close()
            raise Unusable(TOO_COMPLEX, self._fate(process.returncode))
        if verdict.reason:
            raise Unusable(verdict.reason, verdict.detail)

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _start(self) -> subprocess.Popen[bytes]:
        self.close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "inference_svc.grammars.trial_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        if _exchange(self._process, self._words, START_S) is None:
            self.close()
            raise Unusable("not_served", "constraint: the process that checks constraints does not start")
        return self._process

    def _fate(self, code: int) -> str:
        if code == -signal.SIGPROF or code == -signal.SIGKILL:
            return f"constraint: compiling it takes more than {self._seconds:g} s"
        return "constraint: it is nested too deeply, or needs too much memory, to be compiled"


def _exchange(process: subprocess.Popen[bytes], message: msgspec.Struct, wall_s: float) -> Verdict | None:
    """Sends a frame and reads the reply; None when the process ended or took too long."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        write_frame(process.stdin, message)  # type: ignore[arg-type]
        data = _read(process.stdout, time.monotonic() + wall_s)
    except BrokenPipeError:
        data = None
    if data is None:
        _see_end(process)
        return None
    return msgspec.msgpack.decode(data, type=Verdict)


def _see_end(process: subprocess.Popen[bytes]) -> None:
    """Sees to it that the process is gone and its exit code known."""
    try:
        process.wait(1.0 if process.poll() is None else 0.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _read(pipe: IO[bytes], until: float) -> bytes | None:
    """One frame, or None at the end of the stream or of the time."""
    head = _exactly(pipe, HEAD, until)
    return None if head is None else _exactly(pipe, int.from_bytes(head, "little"), until)


def _exactly(pipe: IO[bytes], count: int, until: float) -> bytes | None:
    data = b""
    while len(data) < count:
        ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
        more = os.read(pipe.fileno(), count - len(data)) if ready else b""
        if not more:
            return None
        data += more
    return data
