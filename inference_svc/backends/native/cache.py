"""The cache directory: built libraries and packed weights, shared by all processes of a user."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

_log = logging.getLogger(__name__)

_NOWHERE = Path(os.devnull) / "kev"
"""Nothing can be made there."""


def cache_dir() -> Path:
    """Where caches live: ``KEV_CACHE_DIR``, else ``kev`` in the user's cache directory.

    Where that cannot be told (``~nobody/cache``, no home directory) it is a place that cannot be written.
    """
    named = os.environ.get("KEV_CACHE_DIR")
    try:
        if named:
            return Path(named).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kev"
    except RuntimeError as error:
        _warn_once(named or "~/.cache", str(error))
        return _NOWHERE


@cache
def _warn_once(place: str, reason: str) -> None:
    _log.warning("native: nothing is cached, for there is no %s (KEV_CACHE_DIR names another): %s", place, reason)


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Holds the lock that belongs to ``target`` (made with its directory): one process writes it at a time.

    Raises:
        OSError: the directory cannot be made or written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not O_WRONLY, which waits where somebody put a pipe.
    lock = os.open(target.parent / f"{target.name}.lock", os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


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
