"""Where a reader stands, so that it can go on elsewhere."""

from __future__ import annotations

from kev.client.progress import Progress
from kev.domain.result import Frame, ResumePoint, SlotResult


def test_it_follows_attempts_and_offsets() -> None:
    progress = Progress()
    assert not progress.began
    assert progress.take(Frame("r", 0, attempt=1, text="abc"))
    assert progress.take(Frame("r", 0, attempt=1, text_offset=3, text="é🙂"))
    assert progress.take(Frame("r", 4, attempt=1, text="x"))
    assert progress.take(Frame("r", 4, attempt=2, text="yz", reset=True))
    assert progress.began
    assert progress.points() == (ResumePoint(0, 1, 5), ResumePoint(4, 2, 2))


def test_a_repeated_last_frame_is_dropped_but_pending_is_no_end() -> None:
    progress = Progress([ResumePoint(0, 1, 2)])
    assert progress.take(Frame("r", 0, attempt=1, text_offset=2, result=SlotResult("r", 0, status="pending")))
    last = Frame("r", 0, attempt=1, text_offset=2, text="c", result=SlotResult("r", 0, status="answered"))
    assert progress.take(last)
    assert not progress.take(last)
    assert progress.points() == (ResumePoint(0, 1, 3),)
