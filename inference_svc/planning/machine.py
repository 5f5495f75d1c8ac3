"""How much memory this process may use: the machine's, or less where a container says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_UNLIMITED = 1 << 60


def memory_limit(root: Path = Path("/")) -> int:
    """Bytes: the smallest of the machine's memory and the limits of its control groups, all the way up.

    Args:
        root: Of the file system; another one for tests.
    """
    return min([_machine(root), *_limits(root)])


def _machine(root: Path) -> int:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal"))
    except (OSError, StopIteration, ValueError, IndexError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _limits(root: Path) -> Iterator[int]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, names, path = line.split(":", 2)
        if names and "memory" not in names.split(","):
            continue
        base, name = ("sys/fs/cgroup", "memory.max") if not names else ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        group = root / base / path.strip("/")
        while group != group.parent and group.is_relative_to(root / base):
            yield from _read(group / name)
            group = group.parent


def _read(path: Path) -> Iterator[int]:
    try:
        text = path.read_text().strip()
    except OSError:
        return
    if text.isdecimal() and int(text) < _UNLIMITED:
        yield int(text)
