"""First text, pauses between texts, end to end."""

from __future__ import annotations

from aggregator_svc.timing import Timing, end_to_end_s
from kev.domain.outcome import Audit, FinishReason, Outcome, Status


def outcome(audit: Audit) -> Outcome:
    return Outcome("id", "rid", 0, Status.ANSWERED, FinishReason.STOP, audit=audit)


def test_the_first_text_of_a_slot_counts_from_the_start_and_later_ones_from_the_last():
    timing = Timing(10.0, fresh=True)
    assert timing.heard([0, 1], 12.0) == ([2.0, 2.0], [])
    assert timing.heard([1, 2], 12.5) == ([2.5], [0.5])


def test_an_old_request_has_no_first_text():
    timing = Timing(10.0, fresh=False)
    assert timing.heard([0], 12.0) == ([], [])
    assert timing.heard([0], 12.25) == ([], [0.25])


def test_end_to_end_is_waiting_and_running_together():
    assert end_to_end_s(outcome(Audit(channel="w/1", queued_ms=500.0, elapsed_ms=1500.0))) == 2.0


def test_a_slot_that_never_ran_has_no_end_to_end():
    assert end_to_end_s(outcome(Audit(queued_ms=500.0))) is None
