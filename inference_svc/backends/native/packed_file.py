"""The file of packed weights: 64 bytes with a checksum, then the arrays as their layout says.

It holds nothing that has to be believed. Its name and the model tell how long
it must be and where its arrays lie, and the checksum covers that name and every
byte, so a file is used as it was written or not at all. The checksum guards
against damage, not against somebody who may write the cache: the kernels, which
are programs, lie beside it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from inference_svc.backends.native.layout import Layout, padded
from inference_svc.backends.native.packing import Array

HEAD = 64
_MAGIC = b"KEVPACK3"
_MOST_THREADS = 4
_CHUNK = 1 << 18  # stays in a cache of the processor
# Never waits for a pipe's other end, nor takes a terminal.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_T = TypeVar("_T")


class Unfit(Exception):
    """A file that must not be used as packed weights; the text says why."""


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: Any, /) -> Any:
        """Takes all of them."""


def write(stream: Sink, name: str, plan: Layout, arrays: Mapping[str, Array]) -> None:
    """Writes a model.

    Args:
        name: The file's name in the end, which ``mapped`` expects: all that the arrays were made from.
        plan: The layout of ``arrays``.

    Raises:
        OSError: the file cannot be written.
    """
    parts = list(_parts(plan, arrays))
    stream.write(_head(name, _map(_sum, parts)))
    for part in parts:
        stream.write(part.data)
        stream.write(bytes(padded(part.nbytes) - part.nbytes))


def mapped(path: Path, plan: Layout) -> Array:
    """The arrays of a file, uint8 and read-only, once all of it was read and found as it was written.

    Raises:
        OSError: there is no file, or it cannot be read.
        Unfit: it is not what was written under this name and layout.
    """
    file = os.open(path, _FLAGS)
    try:
        _check(os.fstat(file), path.parent.stat().st_uid, plan)
        if os.pread(file, HEAD, 0) != _head(path.name, _map(partial(_sum_of_file, file), plan.offsets.values())):
            raise Unfit("its checksum does not fit its content")
        return np.frombuffer(mmap.mmap(file, HEAD + plan.size, access=mmap.ACCESS_READ), np.uint8)[HEAD:]
    finally:
        os.close(file)


def in_memory(plan: Layout, arrays: Mapping[str, Array]) -> Array:
    """The same without a file."""
    memory = np.frombuffer(mmap.mmap(-1, plan.size), np.uint8)
    for (start, size), part in zip(plan.offsets.values(), _parts(plan, arrays), strict=True):
        memory[start : start + size] = part
    return memory


def _check(found: os.stat_result, folder_owner: int, plan: Layout) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Unfit("it is not a regular file")
    if found.st_uid not in (0, os.geteuid(), folder_owner):
        raise Unfit("it belongs to another user")
    if found.st_size != HEAD + plan.size:
        raise Unfit(f"it has {found.st_size} bytes, this model's have {HEAD + plan.size}")


def _parts(plan: Layout, arrays: Mapping[str, Array]) -> Iterator[Array]:
    """The arrays' bytes, in order.

    Raises:
        ValueError: the arrays are not those of the layout.
    """
    for (name, array), (planned, (_, size)) in zip(arrays.items(), plan.offsets.items(), strict=True):
        if (name, array.nbytes) != (planned, size):
            raise ValueError(f"packed {name} has {array.nbytes} bytes, the layout has {planned} with {size}")
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _head(name: str, sums: Iterable[int]) -> bytes:
    """What a file begins with: its name, and the CRC-32 of each array with its padding, in one digest."""
    content = b"".join(value.to_bytes(4, "little") for value in sums)
    return (_MAGIC + hashlib.sha256(name.encode() + b"\0" + content).digest()).ljust(HEAD, b"\0")


def _map(function: Callable[[_T], int], items: Iterable[_T]) -> list[int]:
    """In a few threads: reading and zlib free the GIL. CRC-32 is fast on every processor."""
    with ThreadPoolExecutor(min(_MOST_THREADS, len(os.sched_getaffinity(0)))) as threads:
        return list(threads.map(function, items))


def _sum(part: Array) -> int:
    return zlib.crc32(bytes(padded(part.nbytes) - part.nbytes), zlib.crc32(part.data))


def _sum_of_file(file: int, place: tuple[int, int]) -> int:
    """The same of what is stored. Read, not mapped: of a bad disk this gives an error, a mapping ends the process."""
    at, end = HEAD + place[0], HEAD + place[0] + padded(place[1])
    buffer, found = memoryview(bytearray(min(_CHUNK, end - at))), 0
    while at < end:
        size = os.preadv(file, [buffer[: end - at]], at)
        if not size:
            raise Unfit("it became shorter while it was read")
        found = zlib.crc32(buffer[:size], found)
        at += size
    return found
