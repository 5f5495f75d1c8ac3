"""A log file that is turned over when it is full: ``w.jsonl``, then ``w.jsonl.1`` (the newest old one) and on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO


class RotatingFile:
    """Whole lines only; one writer. A file begins anew rather than grow beyond ``most_bytes``.

    Args:
        path: The current file; its folder is made. Only this user may read it.
        keep: Old files that stay.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, most_bytes: int, keep: int) -> None:
        self.path = path
        self._most = most_bytes
        self._keep = keep
        path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self._open()

    def full_for(self, text: str) -> bool:
        """Whether this line would not fit any more."""
        size = self._stream.tell()
        return size > 0 and size + len(text.encode()) > self._most

    def write(self, text: str) -> None:
        """Writes a line through to the system.

        Raises:
            OSError: the disk is full, or the like; the line may be there in part.
        """
        self._stream.write(text.encode())
        self._stream.flush()

    def turn(self) -> None:
        """Puts the current file behind the others and begins a new one."""
        self._stream.close()
        for number in range(self._keep, 0, -1):
            older = self._old(number)
            newer = self._old(number - 1) if number > 1 else self.path
            if newer.exists():
                newer.replace(older)
        if not self._keep:
            self.path.unlink(missing_ok=True)
        self._stream = self._open()

    def close(self) -> None:
        """Ends it."""
        self._stream.close()

    def _old(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _open(self) -> IO[bytes]:
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        stream = os.fdopen(handle, "ab")
        stream.seek(0, os.SEEK_END)
        return stream
