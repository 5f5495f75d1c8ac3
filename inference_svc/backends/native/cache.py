"""The cache directory: built libraries and packed weights, shared by all processes of a user."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO


def cache_dir() -> Path:
    """Where caches live: ``KEV_CACHE_DIR``, else ``kev`` in the user's cache directory."""
    named = os.environ.get("KEV_CACHE_DIR")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kev"


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Holds the lock that belongs to ``target`` (made with its directory): one process makes it, others wait.

    Raises:
        OSError: the directory cannot be made or written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def publish(target: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Writes ``target`` whole or not at all: into a neighbour first, then renamed.

    Raises:
        OSError: the directory cannot be written, or the disk is full.
    """
    with NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as stream:
        part = Path(stream.name)
        try:
            write(stream)
            stream.flush()
            part.chmod(0o644)
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
