"""A temporary folder that the next start removes when this process was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

_LOCK = "in-use.lock"


class Scratch:
    """A folder of our own under the system's temporary one, locked while this process lives.

    Making one removes those that killed processes left behind: their locks
    are free. A folder without a lock file is somebody's who is just making it.

    Args:
        prefix: First letters of the folder's name; only folders with it are looked at.
    """

    def __init__(self, prefix: str) -> None:
        _remove_stale(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._lock = _locked(self.path)

    def close(self) -> None:
        """Removes the folder. May be called twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _locked(folder: Path) -> IO[str]:
    """The held lock. It gets its name only once it is held, so that nobody takes it for a free one."""
    part = folder / f"{_LOCK}.part"
    lock = part.open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    part.rename(folder / _LOCK)
    return lock


def _remove_stale(prefix: str) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with (folder / _LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # in use, gone by now, or not made by us
            continue
