"""Finds the stored text that goes furthest along a new one, page by page. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import Generic, TypeVar

from inference_svc.rows import PAGE_SIZE, Int32Array

T = TypeVar("T", bound=Hashable)


def page_digests(tokens: Int32Array) -> tuple[bytes, ...]:
    """One digest per full page, each of all tokens up to that page's end."""
    running, found = blake2b(digest_size=16), []
    for end in range(PAGE_SIZE, len(tokens) + 1, PAGE_SIZE):
        running.update(tokens[end - PAGE_SIZE : end].tobytes())
        found.append(running.digest())
    return tuple(found)


class PageIndex(Generic[T]):
    """Which stored things begin with which pages."""

    size = PAGE_SIZE

    def __init__(self) -> None:
        self._at: dict[tuple[Hashable, bytes], dict[T, None]] = {}
        self._of: dict[T, list[tuple[Hashable, bytes]]] = {}

    def add(self, scope: Hashable, digests: Sequence[bytes], thing: T) -> None:
        """Stores a thing under its pages; a scope's things are found in that scope only."""
        places = [(scope, digest) for digest in digests]
        self._of[thing] = places
        for place in places:
            self._at.setdefault(place, {})[thing] = None

    def remove(self, thing: T) -> None:
        """Forgets a thing."""
        for place in self._of.pop(thing):
            del self._at[place][thing]
            if not self._at[place]:
                del self._at[place]

    def longest(self, scope: Hashable, digests: Sequence[bytes]) -> tuple[int, T | None]:
        """How many leading pages some stored thing has in common with these, and the newest such thing."""
        for count in range(len(digests), 0, -1):
            if found := self._at.get((scope, digests[count - 1])):
                return count, next(reversed(found))
        return 0, None
