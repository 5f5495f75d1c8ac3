"""The process in which a schema or an expression is tried first. It may be lost.

Compiling can overflow the stack, which no limit of the library prevents and
no Python code survives, and can take long, which nothing interrupts. Here the
one ends this process and the other is ended by its timer.

Frames on stdin and stdout: four bytes of length, then MessagePack. The first
frame in is a ``Words``, then come ``Task``\\ s, each answered by a ``Verdict``.
"""

from __future__ import annotations

import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from inference_svc.grammars.library import Matcher, Vocabulary, Words
from inference_svc.grammars.port import GrammarFailed, Unusable
from kev.domain.question import Constraint

COMPILE_STACK, STEP_STACK = 8 << 20, 512 << 10
"""Bytes: a part of what the worker's own threads have, so that what passes here passes there."""
MEMORY = 2 << 30
STEPS = 8
SLOWEST_STEP_S = 0.1
HEAD = 4


class Task(msgspec.Struct, frozen=True):
    """A constraint to try, and how much processor time that may take, seconds."""

    constraint: Constraint
    seconds: float


class Verdict(msgspec.Struct, frozen=True):
    """Why the constraint is refused; both empty if it may be used."""

    reason: str = ""
    detail: str = ""


def write_frame(out: BinaryIO, message: msgspec.Struct) -> None:
    """Sends a frame."""
    data = msgspec.msgpack.encode(message)
    out.write(len(data).to_bytes(HEAD, "little") + data)
    out.flush()


def read_frame(source: BinaryIO) -> bytes | None:
    """Reads a frame; None at the end of the stream."""
    head = source.read(HEAD)
    size = int.from_bytes(head, "little")
    data = source.read(size) if len(head) == HEAD else b""
    return data if len(head) == HEAD and len(data) == size else None


def main() -> None:
    """Answers until stdin ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker
    first = read_frame(sys.stdin.buffer)
    if first is None:
        return
    vocabulary = Vocabulary(msgspec.msgpack.decode(first, type=Words))
    write_frame(sys.stdout.buffer, Verdict())
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        task = msgspec.msgpack.decode(frame, type=Task)
        signal.setitimer(signal.ITIMER_PROF, task.seconds)  # at its end the process dies of SIGPROF
        verdict = tried(vocabulary, task.constraint)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        write_frame(sys.stdout.buffer, verdict)


def tried(vocabulary: Vocabulary, constraint: Constraint) -> Verdict:
    """Compiles, and takes a few steps."""
    made: list[Matcher] = []
    verdict = _in_thread(COMPILE_STACK, lambda: made.append(vocabulary.compiled(constraint)))
    return verdict if verdict.reason else _in_thread(STEP_STACK, lambda: _step(made.pop()))


def _step(matcher: Matcher) -> None:
    """Follows the grammar for some tokens, as an answer would, here always the middle one of the allowed ones."""
    for _ in range(STEPS):
        began = time.thread_time()
        ids = matcher.allowed()
        done = matcher.take(int(ids[len(ids) // 2]))
        if time.thread_time() - began > SLOWEST_STEP_S:
            raise GrammarFailed("constraint: a step takes too long")
        if done:
            return


def _in_thread(stack: int, work: Callable[[], None]) -> Verdict:
    """Runs ``work`` on a stack of its own size."""
    found = [Verdict()]

    def run() -> None:
        try:
            work()
        except Unusable as error:
            found[0] = Verdict(error.reason, str(error))
        except GrammarFailed as error:
            found[0] = Verdict("too_complex", str(error))

    threading.stack_size(stack)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


if __name__ == "__main__":
    main()
