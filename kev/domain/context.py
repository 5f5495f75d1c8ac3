"""A context pool as its owner sees it."""

from __future__ import annotations

from msgspec import Struct


class Context(Struct, frozen=True):
    """A named document that chosen questions read.

    Attributes:
        tokens: Of its text in the prompt.
        digest: SHA-256 of its tokens, in hex.
        created_ms, expires_ms: Unix milliseconds; 0 for one that does not expire.
        replaced: Whether it took the place of another of its name; known where it is created only.
    """

    name: str
    tokens: int
    digest: str
    created_ms: int
    expires_ms: int = 0
    replaced: bool = False
