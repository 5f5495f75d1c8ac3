"""Manifests, and who still works on them.

Every router that works on a request keeps a copy of the manifest of its own
on the manifest's subject, and deletes that copy when it gives up: the request
stands while there is one. A copy goes in only behind the one that its writer
has read (*expected last subject sequence*), so that nobody adds to a request
that is just being deleted.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time

import msgspec

from kev.bus.messages import Manifest, decode, encode
from kev.bus.nats.link import Link
from kev.bus.nats.reading import last_at_leader
from kev.bus.nats.replies import LOST, ApiError
from kev.bus.nats.subjects import Names
from kev.bus.port import Claim
from kev.domain.errors import BusUnavailable

_GONE = (10043, 10057)
"""The broker's words for a message that is not there (any more)."""
_TRIES, _DOUBTS = 40, 4
_PAUSE_S = 0.02


class Copy(Manifest, frozen=True):
    """A manifest on the broker. Whoever decodes it as ``Manifest`` sees just that.

    Attributes:
        writer: Drawn by who wrote it: tells an unanswered writer whether it was stored.
        born: Sequence of the request's first copy; 0 in that one itself.
    """

    writer: str = ""
    born: int = 0

    def manifest(self) -> Manifest:
        """What was accepted."""
        return Manifest(*(getattr(self, name) for name in Manifest.__struct_fields__))


class Claims:
    """The manifests' side of the stream of results.

    Args:
        ttl_s: Life of a request: a later copy does not make it longer.
    """

    def __init__(self, link: Link, names: Names, ttl_s: float) -> None:
        self._link = link
        self._names = names
        self._ttl_ms = int(ttl_s * 1000)

    async def open(self, manifest: Manifest) -> Claim:
        """See ``Bus.open_request``."""
        subject = self._names.manifest(manifest.rid)
        first = Copy(**msgspec.structs.asdict(manifest), writer=secrets.token_hex(8))
        wanted, last, doubts = first, 0, 0
        for attempt in range(_TRIES):
            try:
                if (number := await self._write(subject, wanted, last)) is not None:
                    return Claim(wanted.manifest(), not wanted.born, number)
            except BusUnavailable:
                doubts += 1
                if doubts == _DOUBTS:
                    raise
            found = await self.read(manifest.rid)
            if found is None:
                wanted, last = first, 0
                continue
            last, copy = found
            if copy.writer == first.writer:
                return Claim(copy.manifest(), not copy.born, last)
            if self.over(copy):
                wanted = first
            elif copy.digest != manifest.digest:
                return Claim(copy.manifest(), False, 0)
            else:
                wanted = msgspec.structs.replace(copy, writer=first.writer, born=copy.born or last)
            await asyncio.sleep(_PAUSE_S * attempt * random.random())
        raise BusUnavailable(f"no decision about {subject}: too many write it at once")

    async def give_up(self, number: int) -> None:
        """Deletes one copy. One that is gone already is as good."""
        try:
            await self._link.api(f"STREAM.MSG.DELETE.{self._names.result_stream}", {"seq": number, "no_erase": True})
        except ApiError as error:
            if error.err_code not in _GONE:
                raise

    async def read(self, rid: str) -> tuple[int, Copy] | None:
        """The newest copy and its sequence, from the leader: never stale."""
        found = await last_at_leader(self._link, self._names.result_stream, self._names.manifest(rid))
        return None if found is None else (found[0], decode(found[1], Copy))

    def over(self, copy: Copy) -> bool:
        """Whether the request's life has ended, although this later copy is still there: its first outcomes are not."""
        return copy.born > 0 and time.time_ns() // 1_000_000 >= copy.created_ms + self._ttl_ms

    async def _write(self, subject: str, copy: Copy, last: int) -> int | None:
        """The sequence of the written copy; None if ``last`` is not the newest any more.

        Raises:
            BusUnavailable: not answered; it may have been written.
        """
        try:
            answer = await self._link.store(subject, encode(copy), {"Nats-Expected-Last-Subject-Sequence": str(last)})
        except ApiError as error:
            if error.err_code not in LOST:
                raise
            return None
        return int(answer["seq"])
