"""Context pools in a KV bucket: the tokens in parts, then the record that names them.

A record and its parts never disagree, whoever writes, dies or deletes at the
same time. Parts carry the number of their upload. A record is written only
over the one that was there before its parts were; who loses that race begins
anew. So whatever parts are older than those of the record that won belong to
nobody, and are swept. A deletion is a record too, an empty one, that outlives
every upload which began before it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator

from msgspec import Struct

from kev.bus.checks import check_pool
from kev.bus.feed import BusStats
from kev.bus.messages import ContextPool, PoolInfo, digest_of_tokens, encode
from kev.bus.nats.link import Headers, Link
from kev.bus.nats.reading import all_of, last_at_leader
from kev.bus.nats.replies import ApiError
from kev.bus.nats.subjects import Names
from kev.domain.errors import BusUnavailable
from kev.domain.ids import rid_of

log = logging.getLogger(__name__)
_LOST = (10071, 10164)  # somebody else wrote in between; the second one with replicas
_GONE_S = 600
_PART = 512 * 1024
_HEADERS = 4096
_TRIES = 5
_PAUSE_S = 0.05


class _Record(Struct, frozen=True):
    """A pool's entry in the bucket. ``parts`` messages of the upload hold its tokens."""

    info: PoolInfo
    upload: str
    parts: int


class Pools:
    """The bucket of context pools."""

    def __init__(self, link: Link, names: Names, stats: BusStats) -> None:
        self._link = link
        self._names = names
        self._stats = stats
        self._stream = names.pool_stream

    async def put(self, pool: ContextPool) -> bool:
        """See ``Bus.put_pool``."""
        check_pool(pool)
        life = _life(pool.info.expires_ms)
        async for base, stored in self._rounds(pool.info.key):
            record, first = await self._upload(pool, life)
            written = await self._replace(self._subject(pool.info), base, encode(record), life)
            if written is not None:
                await self._sweep(pool.info.key, first)
                return stored is not None
        raise BusUnavailable(f"context pool {pool.info.name}: others write it all the time")

    async def delete(self, key: str) -> bool:
        """See ``Bus.delete_pool``."""
        async for base, stored in self._rounds(key):
            if stored is None:
                return False
            gone = {"KV-Operation": "DEL", "Nats-TTL": f"{_GONE_S}s"}
            written = await self._replace(self._subject(stored.info), base, b"", gone)
            if written is not None:
                await self._sweep(key, written)
                return True
        raise BusUnavailable("a context pool could not be deleted: others write it all the time")

    async def get(self, key: str) -> ContextPool | None:
        """See ``Bus.pool``."""
        async for _, stored in self._rounds(key):
            if stored is None:
                return None
            # A replica may be a moment behind, or the pool was replaced in between.
            token_bytes = await self._tokens(key, stored)
            if digest_of_tokens(token_bytes) == stored.info.digest:
                return ContextPool(stored.info, token_bytes)
        raise BusUnavailable("a context pool cannot be read: parts of it are missing at the broker")

    async def info(self, key: str) -> PoolInfo | None:
        """See ``Bus.pool_info``."""
        _, stored = await self._read(key)
        return None if stored is None else stored.info

    async def of(self, tenant: str) -> tuple[PoolInfo, ...]:
        """See ``Bus.pools``."""
        entries = await all_of(self._link, self._stream, self._names.pool_record(_hash(tenant), "*"))
        records = (self._decoded(data) for _, data in entries.values())
        found = (record.info for record in records if record is not None and record.info.tenant == tenant)
        return tuple(sorted(found, key=lambda info: info.name))

    # -- inside --------------------------------------------------------------------
    async def _rounds(self, key: str) -> AsyncIterator[tuple[int, _Record | None]]:
        """Sequence and record of a key as they stand, a few times."""
        for attempt in range(_TRIES):
            await asyncio.sleep(_PAUSE_S * attempt)
            yield await self._read(key)

    async def _read(self, key: str) -> tuple[int, _Record | None]:
        """The last sequence of a key, 0 without one, and its live record; from the leader."""
        found = await last_at_leader(self._link, self._stream, self._names.pool_record("*", key))
        return (0, None) if found is None else (found[0], self._decoded(found[1]))

    def _decoded(self, data: bytes) -> _Record | None:
        record = self._stats.decoded(data, _Record) if data else None
        return record if record is not None and record.info.live(_now_ms()) else None

    async def _upload(self, pool: ContextPool, life: Headers) -> tuple[_Record, int]:
        """Writes the parts; the record to be, and the first part's sequence."""
        size = max(_HEADERS, min(_PART, self._link.max_payload - _HEADERS))
        parts = [pool.token_bytes[start : start + size] for start in range(0, len(pool.token_bytes), size)]
        record = _Record(pool.info, secrets.token_hex(8), len(parts))
        first = 0
        for number, part in enumerate(parts):
            subject = self._names.pool_part(pool.info.key, record.upload, number)
            answer = await self._link.store(subject, part, life)
            first = first or int(answer["seq"])
        return record, first

    async def _replace(self, subject: str, base: int, data: bytes, headers: Headers) -> int | None:
        """Writes a record over that of sequence ``base``; its own sequence, None if ``base`` is not the last now."""
        try:
            answer = await self._link.store(
                subject, data, {"Nats-Expected-Last-Subject-Sequence": str(base), **headers}
            )
        except ApiError as error:
            if error.err_code not in _LOST:
                raise
            return None
        return int(answer["seq"])

    async def _sweep(self, key: str, before: int) -> None:
        """Deletes the parts older than a sequence. What fails here is swept by the next writer of the key."""
        request = {"filter": self._names.pool_part(key, "*", "*"), "seq": before}
        try:
            await self._link.api(f"STREAM.PURGE.{self._stream}", request)
        except (ApiError, BusUnavailable) as error:
            log.warning("old parts of a context pool stay at the broker: %s", error)

    async def _tokens(self, key: str, record: _Record) -> bytes:
        entries = await all_of(self._link, self._stream, self._names.pool_part(key, record.upload, "*"))
        subjects = (self._names.pool_part(key, record.upload, number) for number in range(record.parts))
        return b"".join(entries[subject][1] for subject in subjects if subject in entries)

    def _subject(self, info: PoolInfo) -> str:
        return self._names.pool_record(_hash(info.tenant), info.key)


def _hash(tenant: str) -> str:
    """A tenant's word in a subject: its name could hold anything."""
    return rid_of(tenant, "")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _life(expires_ms: int) -> Headers:
    """Tells the broker when it may forget: some time after the stamp, by which readers go."""
    if expires_ms == 0:
        return {}
    return {"Nats-TTL": f"{max(0, expires_ms - _now_ms()) // 1000 + _GONE_S}s"}
