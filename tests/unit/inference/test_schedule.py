"""Who takes part in a forward: everybody in turn, nobody in another's way."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from inference_svc.channels import Job, Phase
from inference_svc.memory import Memory, MemoryLimits, TooBig
from inference_svc.pages import PageAllocator
from inference_svc.schedule import ForwardLimits, Plan, Scheduler


class Floor:
    """A scheduler whose forwards give token 1 to everybody who wants one."""

    def __init__(self, channels: int = 4, rows: int = 16, pages: int = 64, context: int = 128, **memory: Any) -> None:
        self.memory = Memory(PageAllocator(pages), pages, MemoryLimits(context, **memory))
        self.scheduler = Scheduler(
            ForwardLimits(channels, rows, long_rows=8, long_share=0.5, long_pages=8), self.memory
        )
        self.runs: dict[int, Any] = {}
        self.next_prompt = 0

    def join(self, channel: int, prompt: int = 3, tokens: int = 4, **more: Any) -> None:
        start = more.pop("start", 100 * channel)
        values = {"group": f"r{channel}"} | more
        job = Job(channel=channel, prompt=np.arange(start, start + prompt, dtype=np.int32), max_tokens=tokens, **values)
        self.runs[channel] = self.scheduler.join(job)

    def turn(self) -> dict[int, int]:
        """One forward; rows per channel."""
        plan = self.scheduler.plan()
        if plan is None:
            return {}
        self.memory.scrubs.clear()
        plan.pack()
        self.scheduler.advance(plan)
        self._grow(plan)
        return {step.run.job.channel: step.count for step in plan.steps}

    def _grow(self, plan: Plan) -> None:
        for step in plan.steps:
            if step.wanted:
                step.run.append(1)
                if step.run.full:
                    self.scheduler.leave(step.run)

    def all_turns(self) -> list[dict[int, int]]:
        turns = []
        while rows := self.turn():
            turns.append(rows)
            assert len(turns) < 1000
        self.memory.check()
        return turns


def test_questions_join_and_leave_at_any_forward() -> None:
    floor = Floor()
    floor.join(0, prompt=3, tokens=3)
    assert floor.turn() == {0: 3}
    floor.join(1, prompt=2, tokens=2)
    assert floor.turn() == {0: 1, 1: 2}
    assert floor.turn() == {0: 1, 1: 1}
    assert floor.turn() == {}
    assert floor.memory.available == 64


def test_a_question_that_is_cancelled_is_out_of_the_next_forward() -> None:
    floor = Floor()
    floor.join(0)
    floor.join(1)
    floor.turn()
    floor.scheduler.leave(floor.runs[0])
    assert floor.turn() == {1: 1}
    floor.join(0)
    assert set(floor.turn()) == {0, 1}


def test_a_long_prompt_never_stalls_the_others_decoding() -> None:
    floor = Floor(rows=8)
    for channel in range(3):
        floor.join(channel, prompt=1, tokens=30)
    floor.turn()
    floor.join(3, prompt=40, tokens=2)
    turns = [floor.turn() for _ in range(9)]
    assert all(turn[channel] == 1 for turn in turns for channel in range(3))
    assert [turn[3] for turn in turns] == [5] * 8 + [1]


def test_no_forward_is_larger_than_the_row_budget() -> None:
    floor = Floor(channels=6, rows=7)
    for channel in range(6):
        floor.join(channel, prompt=10 + channel, tokens=5)
    assert all(sum(turn.values()) <= 7 for turn in floor.all_turns())


def test_two_long_prompts_share_the_budget() -> None:
    floor = Floor(rows=8)
    floor.join(0, prompt=60, tokens=1)
    floor.join(1, prompt=16, tokens=1)
    turns = [floor.turn() for _ in range(4)]
    assert sum(turn.get(1, 0) for turn in turns) == 16


def test_more_channels_than_seats_take_turns() -> None:
    floor = Floor(channels=2)
    for channel in range(5):
        floor.join(channel, prompt=1, tokens=6)
    turns = floor.all_turns()
    assert all(len(turn) <= 2 for turn in turns)
    waits = {channel: [n for n, turn in enumerate(turns) if channel in turn] for channel in range(5)}
    for forwards in waits.values():
        assert len(forwards) == 6
        assert max(b - a for a, b in pairwise(forwards)) <= 4


def test_at_most_max_parallel_of_one_request_are_in_a_forward() -> None:
    floor = Floor(channels=8)
    for channel in range(4):
        floor.join(channel, group="same", max_parallel=2)
    floor.join(4, group="other")
    floor.turn()
    assert floor.scheduler.phases()[Phase.PARKED] == 2
    turns = floor.all_turns()
    assert all(len(turn.keys() & {0, 1, 2, 3}) <= 2 for turn in turns)
    assert {2, 3} <= turns[-1].keys()


def test_one_at_a_time_means_one_after_the_other() -> None:
    floor = Floor()
    for channel in range(3):
        floor.join(channel, prompt=1, tokens=2, group="same", max_parallel=1)
    assert [list(turn) for turn in floor.all_turns()] == [[0], [0], [1], [1], [2], [2]]


def test_a_suspect_runs_alone_and_the_others_go_on() -> None:
    floor = Floor()
    floor.join(0, prompt=2, tokens=4)
    floor.join(1, prompt=2, tokens=4, alone=True)
    floor.join(2, prompt=2, tokens=4)
    turns = floor.all_turns()
    assert all(list(turn) == [1] for turn in turns if 1 in turn)
    assert sum(1 in turn for turn in turns) == 4
    first_half = turns[:4]
    assert any(0 in turn for turn in first_half)
    assert any(1 in turn for turn in first_half)


def test_a_question_waits_until_all_it_can_need_is_free() -> None:
    floor = Floor(pages=4, context=64)
    floor.join(0, prompt=17, tokens=16)
    floor.join(1, prompt=17, tokens=32)
    floor.join(2, prompt=1, tokens=1)
    assert set(floor.turn()) == {0}, "the small one does not overtake for ever"
    turns = floor.all_turns()
    assert {1, 2} <= {channel for turn in turns for channel in turn}


def test_a_small_one_starts_beside_others_when_pages_are_there() -> None:
    floor = Floor(pages=4, context=64, rows=64)
    floor.join(0, prompt=17, tokens=16)
    floor.join(1, prompt=10, tokens=5)
    assert set(floor.turn()) == {0, 1}


def test_what_can_never_fit_is_told_so() -> None:
    floor = Floor(pages=2, context=64)
    with pytest.raises(TooBig, match="the prompt has 64 tokens; a channel holds 64"):
        floor.join(0, prompt=64)
    with pytest.raises(TooBig, match="need 3 KV pages; the store has 2"):
        floor.join(0, prompt=30, tokens=10)
    assert len(floor.scheduler) == 0


def test_unified_reserves_the_whole_context() -> None:
    floor = Floor(pages=8, context=64, unified=True)
    for channel in range(3):
        floor.join(channel, prompt=1, tokens=1)
    assert set(floor.turn()) == {0, 1}
    assert set(floor.turn()) == {2}


def test_the_context_bounds_an_answer() -> None:
    floor = Floor(context=20)
    floor.join(0, prompt=15, tokens=100)
    assert len(floor.all_turns()) == 5


def test_a_taken_channel_is_refused() -> None:
    floor = Floor()
    floor.join(0)
    with pytest.raises(ValueError, match="channel 0 is taken"):
        floor.join(0)


def test_a_prefix_is_computed_once_and_its_pages_are_shared() -> None:
    floor = Floor(rows=64)
    for channel in range(3):
        floor.join(channel, prompt=40, tokens=4, prefix=35, start=7)
    first = floor.turn()
    assert list(first.values()) == [35]
    assert floor.turn() == {0: 5, 1: 5, 2: 5}
    tables = [floor.runs[channel].table for channel in range(3)]
    assert all((table[:2] == tables[0][:2]).all() for table in tables)
    own = [page for table in tables for page in table[2:].tolist()]
    assert len(set(own)) == len(own)
    assert [source for source, _ in floor.memory.copies] == [floor.memory.copies[0][0]] * 3
    floor.all_turns()
    assert floor.memory.available == 64 - 3, "the prefix stays"
    floor.join(0, prompt=40, tokens=4, prefix=35, start=7)
    assert floor.turn() == {0: 5}


def test_idle_prefixes_make_room() -> None:
    floor = Floor(pages=6, context=80, rows=64)
    for start in (0, 1000, 2000):
        floor.join(0, prompt=33, tokens=2, prefix=32, start=start)
        floor.all_turns()
    floor.join(0, prompt=70, tokens=9)
    floor.all_turns()
    assert floor.memory.available == 6


def test_pages_that_held_something_are_scrubbed_unless_told_otherwise() -> None:
    floor = Floor(context=64, rows=64, unified=True)
    floor.join(0, prompt=17, tokens=9)
    floor.turn()
    table = floor.runs[0].table.tolist()
    floor.scheduler.leave(floor.runs[0])
    assert floor.memory.scrubs == sorted(table[:2])
    floor.memory.scrubs.clear()
    floor.join(0, prompt=17, tokens=9, scrub=False)
    floor.turn()
    floor.scheduler.leave(floor.runs[0])
    assert floor.memory.scrubs == []


def test_a_long_prompt_adds_a_share_of_the_others_rows() -> None:
    floor = Floor(rows=32)
    floor.join(0, prompt=40, tokens=1, long=True)
    assert floor.turn() == {0: 8}  # alone: never more than its own chunk
    floor.join(1, prompt=10, tokens=3)
    assert floor.turn() == {0: 5, 1: 10}  # half of ten
    assert floor.turn() == {0: 1, 1: 1}  # half of one is less than a row
    assert floor.turn() == {0: 1, 1: 1}
    assert floor.turn() == {0: 8}
    assert sum(rows.get(0, 0) for rows in floor.all_turns()) == 40 - 8 - 5 - 1 - 1 - 8


def test_others_that_fill_the_budget_do_not_starve_a_long_prompt_nor_does_it_stall_them() -> None:
    floor = Floor(channels=8, rows=16)
    floor.join(7, prompt=40, tokens=1, long=True)
    for channel in range(4):
        floor.join(channel, prompt=30, tokens=1)
    turns = floor.all_turns()
    assert all(rows.get(7, 0) <= 8 for rows in turns)
    last_of_others = max(at for at, rows in enumerate(turns) if set(rows) - {7})
    assert sum(rows.get(7, 0) for rows in turns[:last_of_others]) > 0
    assert all(sum(count for channel, count in rows.items() if channel != 7) >= 8 for rows in turns[:last_of_others])


def test_a_long_run_that_waits_for_pages_holds_back_only_its_kind() -> None:
    floor = Floor(pages=16)
    floor.join(0, prompt=90, tokens=4, long=True)
    floor.join(1, prompt=60, tokens=4, long=True)  # more than half of the pages with the first
    floor.join(2, prompt=20, tokens=4)
    floor.turn()
    assert [floor.runs[channel].admitted for channel in range(3)] == [True, False, True]
    floor.all_turns()
    assert floor.runs[1].left
