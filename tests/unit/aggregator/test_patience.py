"""A reader that does not read is cut off only when it costs something."""

from __future__ import annotations

import asyncio

import pytest

from aggregator_svc.assemble import RequestText
from aggregator_svc.fanout import Backlog, Reader
from aggregator_svc.patience import Patience
from kev.bus.messages import Manifest, SlotPlan
from kev.domain.errors import FellBehind
from kev.domain.question import Isolation, ResultMode

SHORT_S, LIMIT = 0.002, 2


class Watched(Backlog):
    """A backlog that tells when somebody has looked at it a second time."""

    def __init__(self) -> None:
        super().__init__(LIMIT)
        self.looks = 0
        self.looked_twice = asyncio.Event()

    @property
    def over(self) -> bool:
        self.looks += 1
        if self.looks > 1:
            self.looked_twice.set()
        return self.waiting > self.limit


@pytest.fixture
async def reader() -> Reader:
    plans = tuple(SlotPlan(slot, 1000) for slot in range(4))
    manifest = Manifest("rid", "req", "", "d", 0, 10, Isolation.STRICT, ResultMode.SLOT_MAP, plans)
    reader = Reader(RequestText(manifest), (), LIMIT)
    reader.backlog = Watched()
    return reader


async def test_a_write_that_hangs_is_waited_for_while_nothing_waits_behind_it(reader: Reader) -> None:
    patience, go = Patience(reader, SHORT_S), asyncio.Event()
    writing = asyncio.ensure_future(patience.wait(go.wait()))
    assert isinstance(reader.backlog, Watched)
    await reader.backlog.looked_twice.wait()
    assert not writing.done()
    go.set()
    await writing
    patience.close()


async def test_a_reader_with_too_much_behind_a_hanging_write_is_cut_off(reader: Reader) -> None:
    patience, written = Patience(reader, SHORT_S), asyncio.get_running_loop().create_future()
    reader.tell(range(LIMIT + 1))
    with pytest.raises(FellBehind, match="3 pieces"):
        await patience.wait(written)
    assert written.cancelled()
    assert (task := asyncio.current_task()) is not None
    assert not task.cancelling()  # the call goes on: its error has to reach the caller
    patience.close()


async def test_a_backlog_alone_cuts_nobody_off(reader: Reader) -> None:
    patience = Patience(reader, SHORT_S)
    reader.tell(range(LIMIT + 1))
    for _ in range(3):
        await patience.wait(asyncio.sleep(0))
        await asyncio.sleep(2 * SHORT_S)  # a look falls between two writes
    patience.close()


async def test_a_caller_that_leaves_while_a_write_hangs_did_not_fall_behind(reader: Reader) -> None:
    patience, written = Patience(reader, 60.0), asyncio.get_running_loop().create_future()
    writing = asyncio.ensure_future(patience.wait(written))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    patience.close()
