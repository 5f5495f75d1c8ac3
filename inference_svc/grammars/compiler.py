"""Turns constraints into grammars, off the event loop and off the model thread.

A schema or an expression is tried in a process of its own once, and its
verdict kept; then every answer gets one compiled for it alone, because the
library's limits count over all that share one: neighbours must not use up, or
spare, each other's. A list of choices has no such limits and is shared.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import msgspec

from inference_svc.grammars.choices import ChoiceList, Pieces
from inference_svc.grammars.library import MISSING, Vocabulary, Words, installed
from inference_svc.grammars.port import Grammar, Unusable
from inference_svc.grammars.trial import Trial
from kev.domain.question import Constraint
from kev.tokens.tokenizer import Tokenizer

V = TypeVar("V")
MOST_VERDICTS, MOST_LISTS = 1024, 64
COMPILE_STACK = 64 << 20
"""Bytes; several times what the trial had."""


class Grammars:
    """The constraints of one worker. Close it.

    Three threads: trials, which may take long, hold up neither grammars that are known to be good nor choices.

    Args:
        seconds: Processor time that compiling one constraint may take.
    """

    def __init__(self, tokenizer: Tokenizer, seconds: float) -> None:
        self._tokenizer = tokenizer
        self._seconds = seconds
        self._verdicts: Kept[Unusable | None] = Kept(MOST_VERDICTS)
        self._lists: Kept[ChoiceList] = Kept(MOST_LISTS)
        self._trying: dict[bytes, asyncio.Future[None]] = {}
        self._pieces: Pieces | None = None
        self._vocabulary: Vocabulary | None = None
        self._trial: Trial | None = None
        self._trials, self._compiles, self._choices = (_thread(name) for name in ("try", "compile", "choices"))

    async def begin(self, constraint: Constraint) -> Grammar:
        """The grammar of one answer, at its beginning. Call it from one event loop.

        Raises:
            Unusable: why there is none.
        """
        key = _key(constraint)
        if constraint.choices:
            return (self._lists.get(key) or await self._list(key, constraint)).begin()
        if not installed():
            raise Unusable("not_served", MISSING)
        if key not in self._verdicts:
            await self._tried(key, constraint)
        if (refused := self._verdicts.get(key)) is not None:
            raise Unusable(refused.reason, str(refused))
        return await asyncio.get_running_loop().run_in_executor(self._compiles, self._compile, constraint)

    def close(self) -> None:
        """Ends the threads and the trial process; what was not begun is dropped."""
        if self._trial is not None:
            self._trials.submit(self._trial.close)
        self._trials.shutdown(wait=False)
        for pool in (self._compiles, self._choices):
            pool.shutdown(wait=False, cancel_futures=True)

    async def _list(self, key: bytes, constraint: Constraint) -> ChoiceList:
        made = await asyncio.get_running_loop().run_in_executor(self._choices, self._make_list, constraint)
        self._lists.put(key, made)
        return made

    async def _tried(self, key: bytes, constraint: Constraint) -> None:
        """Tries a constraint once, however many wait for it."""
        loop = asyncio.get_running_loop()
        if (running := self._trying.get(key)) is None:
            running = self._trying[key] = loop.create_task(self._try(key, constraint))
        await asyncio.shield(running)

    async def _try(self, key: bytes, constraint: Constraint) -> None:
        try:
            work = asyncio.get_running_loop().run_in_executor(self._trials, self._check, constraint)
            self._verdicts.put(key, await work)
        finally:
            del self._trying[key]

    # -- in the threads --------------------------------------------------------------
    def _check(self, constraint: Constraint) -> Unusable | None:
        if self._trial is None:
            self._trial = Trial(Words.of(self._tokenizer), self._seconds)
        try:
            self._trial.check(constraint)
        except Unusable as error:
            return error
        return None

    def _compile(self, constraint: Constraint) -> Grammar:
        if self._vocabulary is None:
            encode = self._tokenizer.encode_text
            self._vocabulary = Vocabulary(Words.of(self._tokenizer), lambda text: encode(text, at_start=False))
        return self._vocabulary.compiled(constraint)

    def _make_list(self, constraint: Constraint) -> ChoiceList:
        if self._pieces is None:
            self._pieces = Pieces(self._tokenizer)
        return ChoiceList(self._pieces, constraint.choices)


class Kept(Generic[V]):
    """The last so many things."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._things: OrderedDict[bytes, V] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return key in self._things

    def __len__(self) -> int:
        return len(self._things)

    def get(self, key: bytes) -> V | None:
        """The thing, which is then the latest."""
        if key not in self._things:
            return None
        self._things.move_to_end(key)
        return self._things[key]

    def put(self, key: bytes, thing: V) -> None:
        """Keeps a thing, and drops the one that was not asked for the longest."""
        self._things[key] = thing
        self._things.move_to_end(key)
        if len(self._things) > self._most:
            self._things.popitem(last=False)


def _key(constraint: Constraint) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode(constraint)).digest()


def _thread(name: str) -> ThreadPoolExecutor:
    """A pool of one thread with a large stack."""
    before = threading.stack_size(COMPILE_STACK)
    try:
        pool = ThreadPoolExecutor(1, f"kev-{name}")
        pool.submit(int).result()
    finally:
        threading.stack_size(before)
    return pool
