"""Context pools and batch prefixes: what questions read besides themselves.

A pool is tokenised once, when it is made, and kept on the bus. A question
that names one gets a reference; its worker reads the tokens there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import numpy as np

from kev.bus.messages import ContextPool, PoolInfo, digest_of_tokens
from kev.bus.port import Bus
from kev.config.settings import Settings
from kev.domain.errors import InvalidArgument, NotFound, NotServed, QuotaExceeded
from kev.domain.ids import POOL_NAME_ALLOWED, is_pool_name, pool_key
from kev.domain.question import Isolation, Question
from router_svc.admission import Refusal
from router_svc.around import ALONE, Around, no_pool
from router_svc.prepare import Preparer

MAX_TTL_MS = 10 * 365 * 24 * 3600 * 1000


class Contexts:
    """The tenants' pools, by way of the bus. Every method raises ``BusUnavailable`` when the broker does not answer.

    Args:
        preparer: Tokenises, in its threads.
        clock: Unix milliseconds.
    """

    def __init__(
        self, bus: Bus, settings: Settings, preparer: Preparer, tokenizer_digest: str, clock: Callable[[], int]
    ) -> None:
        self._bus = bus
        self._limits = settings.context
        self._level = settings.isolation.level
        self._max_chars = settings.router.max_text_chars
        self._first = not settings.core.system_prompt
        self._preparer = preparer
        self._tokenizer_digest = tokenizer_digest
        self._clock = clock
        self._creating = asyncio.Lock()

    async def create(self, tenant: str, name: str, text: str, ttl_ms: int | None = None) -> tuple[PoolInfo, bool]:
        """Makes a pool, in place of the tenant's one of that name.

        Args:
            ttl_ms: How long it is kept, milliseconds; None until it is deleted.

        Returns:
            The pool, and whether there was one of that name.

        Raises:
            InvalidArgument: names the field and what is allowed.
            NotServed: no question could read it here.
            QuotaExceeded: the tenant has as many pools as it may.
        """
        self._check(name, text, ttl_ms)
        if self._level is Isolation.STRICT:
            raise NotServed(
                "contexts are read at isolation loose; this deployment serves strict only (isolation.level)"
            )
        ids = await self._preparer.context("text", text)
        most = self._limits.max_pool_tokens
        if most and len(ids) > most:
            raise InvalidArgument("text", f"has {len(ids)} tokens; at most {most} are kept (context.max_pool_tokens)")
        pool = self._pool(tenant, name, ids, ttl_ms)
        async with self._creating:  # two at once would both find room for the last one
            await self._check_quota(tenant, name)
            return pool.info, await self._bus.put_pool(pool)

    async def list(self, tenant: str) -> tuple[PoolInfo, ...]:
        """The tenant's pools by name."""
        return await self._bus.pools(tenant)

    async def delete(self, tenant: str, name: str) -> None:
        """Ends a pool: no new question may read it.

        Raises:
            InvalidArgument: no pool can have this name.
            NotFound: the tenant has none of it.
        """
        if not is_pool_name(name):
            raise InvalidArgument("name", POOL_NAME_ALLOWED)
        if not await self._bus.delete_pool(pool_key(tenant, name)):
            raise NotFound(f"context {name}: there is none, or it has expired")

    async def around(self, tenant: str, prefix: str, questions: Sequence[Question]) -> Around:
        """What these questions read besides themselves.

        Raises:
            InvalidArgument: ``batch.prefix`` cannot stand before them.
        """
        asked = {question.context_pool for question in questions if question.context_pool}
        names = sorted(name for name in asked if is_pool_name(name))
        if not prefix and not names:
            return ALONE
        found = await asyncio.gather(*(self._resolve(tenant, name) for name in names))
        bare = prefix and any(not question.context_pool for question in questions)
        return Around(
            dict(zip(names, found, strict=True)),
            await self._preparer.context("batch.prefix", prefix) if bare else (),
            await self._preparer.context("batch.prefix", prefix, True) if prefix and names else (),
        )

    async def _resolve(self, tenant: str, name: str) -> PoolInfo | Refusal:
        info = await self._bus.pool_info(pool_key(tenant, name))
        if info is None:
            return no_pool(name)
        if (info.tokenizer_digest, info.first) != (self._tokenizer_digest, self._first):
            return Refusal("context_pool", f"{name!r} was made for another model or system prompt; create it anew")
        return info

    def _check(self, name: str, text: str, ttl_ms: int | None) -> None:
        if not is_pool_name(name):
            raise InvalidArgument("name", POOL_NAME_ALLOWED)
        if not text.strip():
            raise InvalidArgument("text", "must hold text")
        if len(text) > self._max_chars:
            raise InvalidArgument("text", f"must be at most {self._max_chars} characters, got {len(text)}")
        if ttl_ms is not None and not 1 <= ttl_ms <= MAX_TTL_MS:
            raise InvalidArgument("ttl_ms", f"must be 1 to {MAX_TTL_MS}, got {ttl_ms}")

    async def _check_quota(self, tenant: str, name: str) -> None:
        names = {info.name for info in await self._bus.pools(tenant)}
        if name not in names and len(names) >= self._limits.max_pools:
            raise QuotaExceeded(
                f"there are {len(names)} contexts already, at most {self._limits.max_pools}: delete one"
            )

    def _pool(self, tenant: str, name: str, ids: Sequence[int], ttl_ms: int | None) -> ContextPool:
        token_bytes, now_ms = np.asarray(ids, dtype="<i4").tobytes(), self._clock()
        info = PoolInfo(
            key=pool_key(tenant, name),
            tenant=tenant,
            name=name,
            digest=digest_of_tokens(token_bytes),
            tokens=len(ids),
            tokenizer_digest=self._tokenizer_digest,
            created_ms=now_ms,
            expires_ms=0 if ttl_ms is None else now_ms + ttl_ms,
            first=self._first,
        )
        return ContextPool(info, token_bytes)
