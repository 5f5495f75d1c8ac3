"""Tokens of context pools in a worker's memory, read from the bus once. Event loop only."""

from __future__ import annotations

import asyncio
from typing import Protocol

from inference_svc.rows import Int32Array
from inference_svc.settle import persist
from kev.bus.messages import ContextPool, PoolRef, digest_of_tokens

MOST_TOKENS = 4_000_000
"""16 MB; the pools that were used least recently go first."""


class PoolUnusable(ValueError):
    """The pool cannot be read; the text says why, for the asker."""


class Pools(Protocol):
    """Where pools are."""

    async def pool(self, key: str) -> ContextPool | None:
        """The pool of that key, None if there is none."""


class PoolCache:
    """Pools by key and digest: one that was replaced is another one.

    Args:
        most_tokens: Bound of what is kept, all pools together.
    """

    def __init__(self, pools: Pools, most_tokens: int = MOST_TOKENS) -> None:
        self._pools = pools
        self._most = most_tokens
        self._known: dict[tuple[str, str], Int32Array] = {}
        self._reading: dict[tuple[str, str], asyncio.Lock] = {}

    async def tokens(self, ref: PoolRef, tokenizer_digest: str) -> Int32Array:
        """A pool's tokens, int32 ``[ref.tokens]``. Waits while the broker does not answer.

        Raises:
            PoolUnusable: it is gone, or is not the one that the question was counted with.
        """
        key = ref.key, ref.digest
        lock = self._reading.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                found = self._known.pop(key, None)
                if found is None:
                    found = await self._read(ref, tokenizer_digest)
                self._known[key] = found
        finally:
            if not lock.locked():
                self._reading.pop(key, None)
        self._trim()
        return found

    async def _read(self, ref: PoolRef, tokenizer_digest: str) -> Int32Array:
        pool = await persist(lambda: self._pools.pool(ref.key), "read context pool")
        if pool is None:
            raise PoolUnusable("the context pool is gone: it was deleted, or its time is over")
        if pool.info.digest != ref.digest or pool.info.tokens != ref.tokens:
            raise PoolUnusable("the context pool was replaced after the question had been accepted")
        if pool.info.tokenizer_digest != tokenizer_digest:
            raise PoolUnusable("the context pool was made with another tokenizer")
        ids = pool.ids()
        if len(ids) != ref.tokens or digest_of_tokens(pool.token_bytes) != ref.digest:
            raise PoolUnusable("the context pool is damaged: its tokens are not those of its digest")
        return ids

    def _trim(self) -> None:
        """Newest last: what is used is put behind the others."""
        while sum(map(len, self._known.values())) > self._most and len(self._known) > 1:
            del self._known[next(iter(self._known))]
