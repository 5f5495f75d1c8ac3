"""Context pools in memory: pure, time is passed in (Unix milliseconds)."""

from __future__ import annotations

from kev.bus.messages import ContextPool, PoolInfo


class Pools:
    """Pools by key. What has expired is forgotten by the next call."""

    def __init__(self) -> None:
        self._pools: dict[str, ContextPool] = {}

    def put(self, pool: ContextPool, now_ms: int) -> bool:
        """Stores a pool; whether there was one of its key."""
        self._tidy(now_ms)
        replaced = pool.info.key in self._pools
        self._pools[pool.info.key] = pool
        return replaced

    def get(self, key: str, now_ms: int) -> ContextPool | None:
        """The live pool of a key."""
        self._tidy(now_ms)
        return self._pools.get(key)

    def of(self, tenant: str, now_ms: int) -> tuple[PoolInfo, ...]:
        """A tenant's live pools by name."""
        self._tidy(now_ms)
        found = (pool.info for pool in self._pools.values() if pool.info.tenant == tenant)
        return tuple(sorted(found, key=lambda info: info.name))

    def delete(self, key: str, now_ms: int) -> bool:
        """Forgets a pool; whether it was there."""
        self._tidy(now_ms)
        return self._pools.pop(key, None) is not None

    def _tidy(self, now_ms: int) -> None:
        for key in [key for key, pool in self._pools.items() if not pool.info.live(now_ms)]:
            del self._pools[key]
