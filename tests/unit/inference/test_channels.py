"""Seats of a worker, and a slot's life in one."""

from __future__ import annotations

import numpy as np
import pytest

from inference_svc.channels import ChannelPool, Job, Phase, Run


def _run(prompt: int = 3, limit: int = 5) -> Run:
    return Run(Job(0, "r", np.arange(prompt, dtype=np.int32), limit - prompt), 0, limit, 0)


def test_the_assigned_channel_is_preferred_and_any_other_serves() -> None:
    pool = ChannelPool(3)
    assert pool.seat(2) == 2
    assert pool.seat(2) == 0
    assert pool.seat() == 1
    assert pool.seat(0) is None
    assert pool.free == 0
    pool.leave(0)
    assert (pool.free, pool.seat(7)) == (1, 0)


def test_long_questions_and_the_others_have_their_own_channels() -> None:
    pool = ChannelPool(4, long=2)
    assert [pool.seat(3), pool.seat(), pool.seat()] == [0, 1, None]
    assert (pool.room(), pool.room(long=True)) == (0, 2)
    assert [pool.seat(0, long=True), pool.seat(-1, long=True), pool.seat(2, long=True)] == [2, 3, None]
    pool.leave(3)
    assert (pool.seat(), pool.seat(3, long=True)) == (None, 3)
    with pytest.raises(ValueError, match="not for long questions"):
        ChannelPool(2, long=2)


def test_without_long_channels_all_are_for_all() -> None:
    pool = ChannelPool(2)
    assert (pool.seat(1, long=True), pool.seat(), pool.room(), pool.room(long=True)) == (1, 0, 0, 0)


def test_a_free_channel_cannot_be_left() -> None:
    pool = ChannelPool(1)
    with pytest.raises(ValueError, match="channel 0 is not taken"):
        pool.leave(0)
    with pytest.raises(ValueError, match="at least one channel"):
        ChannelPool(0)


def test_a_slot_goes_from_parked_through_prefill_and_decode_to_finished() -> None:
    run = _run()
    assert run.phase is Phase.PARKED
    run.parked = False
    assert (run.phase, run.pending, run.tokens(2).tolist()) == (Phase.PREFILL, 3, [0, 1])
    run.done = 2
    assert (run.phase, run.pending, run.tokens(1).tolist()) == (Phase.PREFILL, 1, [2])
    run.done = 3
    run.append(9)
    assert (run.phase, run.generated, run.tokens(1).tolist(), run.full) == (Phase.DECODE, 1, [9], False)
    run.done = 4
    run.append(8)
    assert run.full
    run.left = True
    assert run.phase is Phase.FINISHED


def test_a_full_run_takes_no_token() -> None:
    with pytest.raises(ValueError, match="no room"):
        _run(5, 5).append(1)
