"""One call for all who ask the same thing at the same moment, and never an old answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kev.bus.nats.together import Together


class Calls:
    """Answers with the number of the call, once it is let go."""

    def __init__(self) -> None:
        self.made: list[tuple[str, list[int]]] = []
        self.go = asyncio.Event()
        self.begun = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, key: str, asked: Sequence[int]) -> int:
        self.made.append((key, list(asked)))
        number = len(self.made)
        self.begun.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return number


async def test_those_who_ask_at_once_share_a_call() -> None:
    calls = Calls()
    calls.go.set()
    together: Together[str, int, int] = Together(calls)
    answers = await asyncio.gather(*(together.ask("a", n) for n in range(3)), together.ask("b", 7))
    assert answers == [1, 1, 1, 2]
    assert calls.made == [("a", [0, 1, 2]), ("b", [7])]


async def test_who_asks_after_a_call_has_begun_gets_one_of_its_own() -> None:
    calls = Calls()
    together: Together[str, int, int] = Together(calls)
    first = asyncio.ensure_future(together.ask("a", 1))
    await calls.begun.wait()
    second = asyncio.ensure_future(together.ask("a", 2))
    calls.go.set()
    assert [await first, await second] == [1, 2]


async def test_who_leaves_takes_nothing_from_the_others() -> None:
    calls = Calls()
    together: Together[str, int, int] = Together(calls)
    one, two = (asyncio.ensure_future(together.ask("a", n)) for n in (1, 2))
    await calls.begun.wait()
    one.cancel()
    calls.go.set()
    assert await two == 1
    assert one.cancelled()


async def test_an_error_reaches_all_and_the_next_ask_tries_again() -> None:
    calls = Calls()
    calls.go.set()
    calls.error = OSError("away")
    together: Together[str, int, int] = Together(calls)
    told = await asyncio.gather(*(together.ask("a", n) for n in range(2)), return_exceptions=True)
    assert [type(error) for error in told] == [OSError, OSError]
    calls.error = None
    assert await together.ask("a", 3) == 2
