"""Writes audit records on a thread of its own: the model thread never waits for a disk."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from inference_svc.audit.files import RotatingFile

log = logging.getLogger(__name__)
MOST_WAITING = 4096
MOST_BYTES = 64 << 20
Count = Callable[[str, int], None]
"""Told how many records were ``written`` or ``dropped``."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A record to be made and written.

    Attributes:
        line: Makes its line; called on the writer's thread.
        size: Bytes that it holds until then.
    """

    line: Callable[[], str]
    size: int


class Writer:
    """A bounded queue before a file. What finds no room is dropped and counted: serving goes first.

    Attributes:
        turns: How often the file was turned over: a record that leans on an earlier line must not cross that.
    """

    def __init__(self, file: RotatingFile, count: Count) -> None:
        self._file = file
        self._count = count
        self._waiting: deque[Waiting] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closed = False
        self._complained = False
        self.turns = 0
        self._thread = threading.Thread(target=self._main, name="kev-audit", daemon=True)
        self._thread.start()

    def put(self, record: Waiting) -> bool:
        """Takes a record; False if there is no room for it."""
        with self._changed:
            room = len(self._waiting) < MOST_WAITING and self._bytes + record.size <= MOST_BYTES
            if room and not self._closed:
                self._waiting.append(record)
                self._bytes += record.size
                self._changed.notify()
                return True
        self._count("dropped", 1)
        return False

    def end(self) -> None:
        """Takes nothing more; ends after what waits. Does not wait for that."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def close(self, timeout_s: float = 5.0) -> None:
        """``end``, and waits for it."""
        self.end()
        self._thread.join(timeout_s)

    def _main(self) -> None:
        while (record := self._next()) is not None:
            try:
                self._write(record.line())
            except Exception as error:
                self._count("dropped", 1)
                if not self._complained:
                    log.error("audit records are lost: %s", error)
                self._complained = True
            else:
                self._count("written", 1)
                self._complained = False
            finally:
                with self._changed:
                    self._bytes -= record.size
        self._file.close()

    def _next(self) -> Waiting | None:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting) or self._closed)
            return self._waiting.popleft() if self._waiting else None

    def _write(self, line: str) -> None:
        if self._file.full_for(line):
            self._file.turn()
            self.turns += 1
        self._file.write(line)
