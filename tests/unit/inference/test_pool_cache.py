"""Context pools are read from the bus once, and only the right ones are used."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
import numpy as np
import pytest

from inference_svc.pool_cache import PoolCache, PoolUnusable
from kev.bus.messages import ContextPool, PoolInfo, PoolRef, digest_of_tokens


def pool(name: str, count: int, first: int = 0) -> ContextPool:
    tokens = np.arange(first, first + count, dtype="<i4").tobytes()
    return ContextPool(PoolInfo(name, "t", name, digest_of_tokens(tokens), count, "tok", 0), tokens)


@dataclasses.dataclass
class Store:
    """Counts the reads."""

    pools: dict[str, ContextPool]
    reads: int = 0

    async def pool(self, key: str) -> ContextPool | None:
        self.reads += 1
        await asyncio.sleep(0)
        return self.pools.get(key)


async def test_many_that_ask_at_once_cost_one_read() -> None:
    kept = pool("a", 40)
    store = Store({"a": kept})
    cache = PoolCache(store)
    found = await asyncio.gather(*(cache.tokens(kept.info.ref, "tok") for _ in range(20)))
    assert store.reads == 1
    assert all(tokens.tolist() == list(range(40)) for tokens in found)


async def test_the_pool_used_least_recently_goes_first() -> None:
    pools = {name: pool(name, 40) for name in "abc"}
    store = Store(pools)
    cache = PoolCache(store, most_tokens=100)
    for name in ("a", "b", "a", "c", "a"):
        await cache.tokens(pools[name].info.ref, "tok")
    assert store.reads == 3
    await cache.tokens(pools["b"].info.ref, "tok")
    assert store.reads == 4


async def test_one_that_alone_is_over_the_bound_is_used_all_the_same() -> None:
    kept = pool("a", 40)
    assert len(await PoolCache(Store({"a": kept}), most_tokens=10).tokens(kept.info.ref, "tok")) == 40


@pytest.mark.parametrize(
    ("stored", "ref", "tokenizer", "reason"),
    [
        (None, pool("a", 4).info.ref, "tok", "is gone"),
        (pool("a", 4, first=9), pool("a", 4).info.ref, "tok", "was replaced"),
        (pool("a", 4), PoolRef("a", pool("a", 4).info.digest, 5), "tok", "was replaced"),
        (pool("a", 4), pool("a", 4).info.ref, "other", "another tokenizer"),
        (msgspec.structs.replace(pool("a", 4), token_bytes=b"\0" * 16), pool("a", 4).info.ref, "tok", "damaged"),
    ],
)
async def test_a_pool_that_is_not_the_right_one_is_refused(
    stored: ContextPool | None, ref: PoolRef, tokenizer: str, reason: str
) -> None:
    cache = PoolCache(Store({"a": stored} if stored else {}))
    for _ in range(2):
        with pytest.raises(PoolUnusable, match=reason):
            await cache.tokens(ref, tokenizer)
    assert not cache._reading, "nothing is left behind"
