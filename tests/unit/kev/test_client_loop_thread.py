"""Asynchronous iterators for synchronous callers: order, errors, leaving early, interrupts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator

import pytest

from kev.client.loop_thread import LoopThread
from kev.domain.errors import KevError


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.close()


async def _count(to: int, left: threading.Event) -> AsyncGenerator[int, None]:
    try:
        for number in range(to):
            yield number
    finally:
        await asyncio.sleep(0)
        left.set()


def test_items_come_in_order_and_the_iterator_ends(loop: LoopThread) -> None:
    left = threading.Event()
    assert list(loop.iterate(lambda: _count(5, left))) == [0, 1, 2, 3, 4]
    assert left.is_set()


def test_leaving_early_closes_the_source(loop: LoopThread) -> None:
    left = threading.Event()
    items = loop.iterate(lambda: _count(5, left))
    assert next(items) == 0
    items.close()
    assert left.is_set()


def test_errors_reach_the_caller(loop: LoopThread) -> None:
    async def broken() -> AsyncGenerator[int, None]:
        yield 1
        raise LookupError("gone")

    items = loop.iterate(broken)
    assert next(items) == 1
    with pytest.raises(LookupError, match="gone"):
        next(items)


def test_an_interrupt_while_waiting_closes_the_source(loop: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    left = threading.Event()

    async def never() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            left.set()

    items = loop.iterate(never)
    assert next(items) == 1
    call = loop.call

    def interrupted(work: object) -> object:
        begun = asyncio.run_coroutine_threadsafe(work, loop._loop)  # type: ignore[arg-type]
        call(asyncio.sleep(0.01))
        begun.cancel()
        monkeypatch.setattr(loop, "call", call)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(items)
    assert left.is_set()


def test_closing_ends_what_runs_and_is_repeatable() -> None:
    loop = LoopThread()
    left = threading.Event()
    items = loop.iterate(lambda: _count(5, left))
    next(items)
    loop.close()
    loop.close()
    assert loop.closed
    with pytest.raises(KevError, match="closed"):
        next(items)


def test_a_fork_is_told_instead_of_left_waiting(loop: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    left = threading.Event()
    items = loop.iterate(lambda: _count(5, left))
    next(items)
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: -1)
        with pytest.raises(KevError, match="forked"):
            loop.call(asyncio.sleep(0))
        with pytest.raises(KevError, match="forked"):
            next(items)
        loop.close()
    assert loop.call(asyncio.sleep(0, "still here")) == "still here"
