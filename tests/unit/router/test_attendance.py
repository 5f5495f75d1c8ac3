"""Whose leaving cancels a request: only the last caller's, and only when it does not come back."""

from __future__ import annotations

import asyncio

from router_svc.attendance import Attendance, Left


def test_the_last_to_leave_is_told_so():
    there = Attendance()
    there.enter("r", "a")
    there.enter("r", "b")
    there.enter("other", "a")
    assert there.leave("r", "a") is Left.OTHERS
    assert there.leave("r", "b") is Left.LAST
    assert there.leave("other", "a") is Left.LAST
    assert len(there) == 0


def test_a_caller_may_be_back_before_its_old_connection_is_known_to_be_gone():
    there = Attendance()
    there.enter("r", "a")
    there.enter("r", "a")
    assert there.leave("r", "a") is Left.OTHERS
    assert there.leave("r", "a") is Left.LAST
    assert len(there) == 0


def test_leaving_for_good_is_believed_of_those_who_are_there():
    there = Attendance()
    there.enter("r", "a")
    assert not there.leaves("r", "stranger")
    assert not there.leaves("nothing", "a")
    assert there.leaves("r", "a")
    assert there.leave("r", "a") is Left.FOR_GOOD
    there.enter("r", "a")
    there.enter("r", "b")
    assert not there.leaves("r", "a"), "b is still there"
    assert there.leave("r", "a") is Left.OTHERS
    assert there.leave("r", "b") is Left.LAST
    assert len(there) == 0


async def test_a_request_is_kept_until_somebody_comes():
    there = Attendance()
    for comes in ("a", "b"):
        waiting = asyncio.create_task(there.deserted("r", "a", 60.0))
        await asyncio.sleep(0)
        there.enter("r", comes)
        assert await waiting is False
        assert there.leave("r", comes) is Left.LAST
    assert len(there) == 0


async def test_it_is_nobodys_when_the_time_is_up_or_the_caller_says_so():
    there = Attendance()
    assert await there.deserted("r", "a", 0.001)
    waiting = asyncio.create_task(there.deserted("r", "a", 60.0))
    await asyncio.sleep(0)
    assert not there.leaves("r", "b")
    assert there.leaves("r", "a")
    assert await waiting
    assert len(there) == 0
