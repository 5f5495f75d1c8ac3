"""Live text: deltas and outcome hints to followers, catch-up from the workers' memory."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
from nats.aio.msg import Msg

from kev.bus.checks import latest_pieces
from kev.bus.feed import BusStats, Feed
from kev.bus.messages import Delta, Piece, encode
from kev.bus.nats.link import Link
from kev.bus.nats.listening import Listening
from kev.bus.nats.subjects import Names
from kev.bus.settings import BusSettings
from kev.domain.outcome import Outcome

log = logging.getLogger(__name__)
_PIECES = tuple[Piece, ...]


class Streaming:
    """What may be lost: followers re-read the request."""

    def __init__(self, link: Link, names: Names, settings: BusSettings, stats: BusStats) -> None:
        self._link = link
        self._names = names
        self._settings = settings
        self._stats = stats
        self._feeds: set[Feed] = set()

    async def publish(self, delta: Delta) -> None:
        """See ``Bus.publish_delta``."""
        await self._link.send(self._names.delta(delta.rid), encode(delta))

    @asynccontextmanager
    async def follow(self, rid: str) -> AsyncIterator[AsyncIterator[Delta | Outcome]]:
        """See ``Bus.follow``. Inside the context the broker knows of us: nothing
        that is published from now on goes by."""
        feed = Feed(self._settings.follow_buffer, self._stats)
        self._feeds.add(feed)
        listenings: list[Listening] = []
        manifest = self._names.manifest(rid)

        def hear_result(message: Msg) -> None:
            if message.subject != manifest:
                self._push(feed, message, Outcome)

        try:
            delta_subject = self._names.delta(rid)
            listenings.append(await self._link.listen(delta_subject, lambda m: self._push(feed, m, Delta)))
            listenings.append(await self._link.listen(self._names.results(rid), hear_result))
            await self._link.flush()
            yield feed
        finally:
            feed.end()
            self._feeds.discard(feed)
            for listening in listenings:
                await listening.close()

    async def catch_up(self, rid: str, open_slots: frozenset[int], workers: int) -> tuple[Piece, ...]:
        """See ``Bus.catch_up``. Ends when every open slot or every known worker has
        answered, or the time is up."""
        pieces: list[Piece] = []

        def complete(replies: Sequence[Msg]) -> bool:
            pieces.extend(self._pieces(replies[-1]))
            return len(replies) >= workers > 0 or open_slots <= {piece.slot for piece in pieces}

        await self._link.gather(self._names.sync(rid), b"", complete, self._settings.catch_up_s)
        return latest_pieces(pieces)

    async def on_catch_up(self, texts: Callable[[str], Sequence[Piece]]) -> Listening:
        """See ``Bus.on_catch_up``. A worker answers also when it runs nothing of the
        request, so that the reader need not wait for it."""
        return await self._link.listen(self._names.sync("*"), lambda message: self._reply(message, texts))

    def end(self) -> None:
        """Ends all followers."""
        for feed in tuple(self._feeds):
            feed.end()

    def _push(self, feed: Feed, message: Msg, kind: type[Delta] | type[Outcome]) -> None:
        if (told := self._stats.decoded(message.data, kind)) is not None:
            feed.push(told)

    def _pieces(self, reply: Msg) -> tuple[Piece, ...]:
        return self._stats.decoded(reply.data, _PIECES) or ()

    async def _reply(self, message: Msg, texts: Callable[[str], Sequence[Piece]]) -> None:
        pieces: Sequence[Piece] = ()
        try:
            pieces = texts(message.subject.rpartition(".")[2])
        except Exception:
            log.exception("no answer to a catch-up request")
        await self._link.send(message.reply, msgspec.msgpack.encode(tuple(pieces)))
