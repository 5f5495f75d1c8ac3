"""A reader's text since the last reset equals the outcome's text, whatever gets lost on the way."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator_svc.assemble import MAX_HELD, RequestText, View
from kev.bus.messages import Manifest, Piece, SlotPlan
from kev.domain.errors import InvalidArgument
from kev.domain.outcome import FinishReason, Outcome, Status, text_digest
from kev.domain.question import Isolation, ResultMode
from kev.domain.result import Frame, ResumePoint


def manifest(*slots: int) -> Manifest:
    plans = tuple(SlotPlan(slot, 1000, id=f"q{slot}") for slot in slots)
    return Manifest("rid", "req", "", "d", 0, 10, Isolation.STRICT, ResultMode.SLOT_MAP, plans)


def outcome(slot: int, text: str, attempt: int = 1, status: Status = Status.ANSWERED) -> Outcome:
    return Outcome(
        "req", "rid", slot, status, FinishReason.STOP, f"q{slot}", text, len(text), text_digest(text), attempt
    )


def piece(slot: int, offset: int, text: str, attempt: int = 1) -> Piece:
    return Piece(slot, attempt, f"w/{slot}", offset, text)


class Screen:
    """A client that applies frames by the rules and checks that they fit."""

    def __init__(self, text: dict[int, str] | None = None) -> None:
        self.text: dict[int, str] = text or {}
        self.place: dict[int, ResumePoint] = {}
        self.last: dict[int, Frame] = {}

    def show(self, frame: Frame | None) -> None:
        if frame is None:
            return
        assert frame.slot not in self.last, "nothing follows a last frame"
        if frame.reset:
            self.text[frame.slot] = ""
        so_far = self.text.get(frame.slot, "")
        assert frame.text_offset == len(so_far), "pieces are contiguous"
        self.text[frame.slot] = so_far + frame.text
        self.place[frame.slot] = ResumePoint(frame.slot, frame.attempt, len(self.text[frame.slot]))
        if frame.result is not None:
            self.last[frame.slot] = frame


def test_pieces_come_through_in_order() -> None:
    heard = RequestText(manifest(0, 1))
    view = View(heard)
    assert heard.hear([piece(0, 0, "Hel"), piece(1, 0, "Bon")]) == [0, 1]
    assert view.frame(0) == Frame("req", 0, "w/0", 1, 0, "Hel")
    heard.hear([piece(0, 3, "lo")])
    assert view.frame(0) == Frame("req", 0, "w/0", 1, 3, "lo")
    assert view.frame(0) is None
    assert view.frame(1) == Frame("req", 1, "w/1", 1, 0, "Bon")


def test_what_a_reader_missed_comes_as_one_piece() -> None:
    heard = RequestText(manifest(0))
    view = View(heard)
    for offset, letter in enumerate("abc"):
        heard.hear([piece(0, offset, letter)])
    assert view.frame(0) == Frame("req", 0, "w/0", 1, 0, "abc")


def test_duplicates_and_overlaps_are_trimmed() -> None:
    heard = RequestText(manifest(0))
    view = View(heard)
    heard.hear([piece(0, 0, "abc")])
    assert heard.hear([piece(0, 0, "abc")]) == []
    heard.hear([piece(0, 1, "bcd")])
    frame = view.frame(0)
    assert frame is not None
    assert frame.text == "abcd"


def test_a_gap_holds_the_slot_back_until_the_text_is_there() -> None:
    heard = RequestText(manifest(0))
    view = View(heard)
    assert heard.hear([piece(0, 2, "c")]) == []
    assert heard.has_gap
    assert view.frame(0) is None
    heard.hear([piece(0, 0, "ab")])
    assert not heard.has_gap
    frame = view.frame(0)
    assert frame is not None
    assert frame.text == "abc"


def test_the_outcome_fills_a_gap() -> None:
    heard = RequestText(manifest(0))
    view = View(heard)
    heard.hear([piece(0, 0, "a"), piece(0, 3, "d")])
    view.frame(0)
    heard.settle(outcome(0, "abcd"))
    frame = view.frame(0)
    assert frame is not None
    assert (frame.reset, frame.text_offset, frame.text) == (False, 1, "bcd")
    assert not heard.has_gap


def test_a_higher_attempt_resets_and_a_lower_one_is_ignored() -> None:
    heard = RequestText(manifest(0))
    view = View(heard)
    heard.hear([piece(0, 0, "old")])
    view.frame(0)
    heard.hear([piece(0, 0, "new", attempt=2), piece(0, 3, "er old")])
    assert view.frame(0) == Frame("req", 0, "w/0", 2, 0, "new", reset=True)


def test_a_reset_comes_at_once_even_when_the_new_text_has_a_gap() -> None:
    heard = RequestText(manifest(0))
    view = View(heard)
    heard.hear([piece(0, 0, "old")])
    view.frame(0)
    assert heard.hear([piece(0, 5, "later", attempt=2)]) == [0]
    assert view.frame(0) == Frame("req", 0, "w/0", 2, 0, "", reset=True)
    heard.hear([piece(0, 0, "hello", attempt=2)])
    assert view.frame(0) == Frame("req", 0, "w/0", 2, 0, "hellolater")


def test_no_reset_for_a_reader_that_has_nothing() -> None:
    heard = RequestText(manifest(0))
    view = View(heard)
    heard.hear([piece(0, 0, "old"), piece(0, 0, "new", attempt=2)])
    frame = view.frame(0)
    assert frame is not None
    assert (frame.reset, frame.text) == (False, "new")


@pytest.mark.parametrize(
    ("streamed", "attempt", "final"),
    [("abX", 1, "abcd"), ("abcd", 1, "ab"), ("ab", 2, "ab"), ("ab", 0, "")],
    ids=["other text", "shorter", "other attempt", "placeholder"],
)
def test_a_different_outcome_resets_and_sends_the_stored_text(streamed: str, attempt: int, final: str) -> None:
    heard = RequestText(manifest(0))
    view = View(heard)
    heard.hear([piece(0, 0, streamed)])
    view.frame(0)
    heard.settle(outcome(0, final, attempt))
    frame = view.frame(0)
    assert frame is not None
    assert (frame.reset, frame.text_offset, frame.text) == (True, 0, final)
    assert frame.result is not None
    assert frame.result.text == final


def test_the_first_outcome_stands_and_nothing_follows_it() -> None:
    heard = RequestText(manifest(0))
    view = View(heard)
    assert heard.settle(outcome(0, "yes"))
    assert not heard.settle(outcome(0, "no", attempt=2))
    assert heard.hear([piece(0, 0, "zzz", attempt=3)]) == []
    frame = view.frame(0)
    assert frame is not None
    assert frame.text == "yes"
    assert view.done
    assert view.frame(0) is None


def test_slots_are_found_by_number_not_by_place() -> None:
    heard = RequestText(manifest(7, 3))
    view = View(heard)
    heard.hear([piece(3, 0, "three"), piece(7, 0, "seven"), piece(99, 0, "nobody")])
    heard.settle(outcome(99, "nobody"))
    seven = view.frame(7)
    assert seven is not None
    assert seven.text == "seven"
    assert heard.open_slots == (7, 3)


def test_resuming_repeats_and_loses_nothing() -> None:
    heard = RequestText(manifest(0))
    heard.hear([piece(0, 0, "abcdef")])
    frame = View(heard, [ResumePoint(0, 1, 4)]).frame(0)
    assert frame is not None
    assert (frame.text_offset, frame.text, frame.reset) == (4, "ef", False)


def test_resuming_in_an_older_attempt_resets() -> None:
    heard = RequestText(manifest(0))
    heard.hear([piece(0, 0, "new", attempt=2)])
    frame = View(heard, [ResumePoint(0, 1, 4)]).frame(0)
    assert frame is not None
    assert (frame.text, frame.reset) == ("new", True)


def test_resuming_ahead_of_this_replica_waits() -> None:
    heard = RequestText(manifest(0))
    view = View(heard, [ResumePoint(0, 2, 4)])
    heard.hear([piece(0, 0, "older text", attempt=1)])
    assert view.frame(0) is None
    heard.hear([piece(0, 0, "new", attempt=2)])
    assert view.frame(0) is None
    heard.hear([piece(0, 3, "er text", attempt=2)])
    frame = view.frame(0)
    assert frame is not None
    assert (frame.text_offset, frame.text, frame.reset) == (4, "r text", False)


def test_resuming_after_the_end_gives_the_record_again_and_no_text() -> None:
    heard = RequestText(manifest(0))
    heard.settle(outcome(0, "abc"))
    frame = View(heard, [ResumePoint(0, 1, 3)]).frame(0)
    assert frame is not None
    assert (frame.text, frame.reset) == ("", False)
    assert frame.result is not None


def test_a_resume_point_for_no_slot_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="slot"):
        View(RequestText(manifest(0)), [ResumePoint(5, 1, 0)])
    for point in (ResumePoint(0, -1, 0), ResumePoint(0, 1, -5)):
        with pytest.raises(InvalidArgument, match="0 or more"):
            View(RequestText(manifest(0)), [point])


def test_a_reader_that_leaves_gets_pending_for_open_slots() -> None:
    heard = RequestText(manifest(0, 1))
    view = View(heard)
    heard.hear([piece(1, 0, "par")])
    heard.settle(outcome(0, "done"))
    for slot in (0, 1):
        view.frame(slot)
    (frame,) = view.pending()
    assert (frame.slot, frame.text, frame.text_offset) == (1, "", 3)
    assert frame.result is not None
    assert (frame.result.status, frame.result.id) == ("pending", "q1")


def test_pieces_beyond_a_gap_are_bounded() -> None:
    heard = RequestText(manifest(0))
    for offset in range(1, 5 * MAX_HELD):
        heard.hear([piece(0, offset, "x")])
    assert len(heard.slots[0].held) <= MAX_HELD


TEXT = st.text(alphabet="ab é中🙂", max_size=12)


@st.composite
def journeys(draw: st.DrawFn) -> tuple[list[Piece | Outcome | str], dict[int, Outcome]]:
    """Pieces of one to three attempts of three slots, cut anyhow, then lost,
    doubled and shuffled; outcomes of any attempt; and reads and disconnects in between."""
    events: list[Piece | Outcome | str] = []
    outcomes: dict[int, Outcome] = {}
    for slot in (0, 4, 2):
        texts = [draw(TEXT) for _ in range(draw(st.integers(1, 3)))]
        for attempt, text in enumerate(texts, 1):
            cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=4)) | {0, len(text)})
            events += [piece(slot, a, text[a:b], attempt) for a, b in pairwise(cuts)]
        winner = draw(st.integers(0, len(texts)))
        final = texts[winner - 1] if winner else draw(st.sampled_from(["", "stored elsewhere"]))
        outcomes[slot] = outcome(slot, final, winner, Status.ANSWERED if winner else Status.TIMED_OUT)
    events += [draw(st.sampled_from(events)) for _ in range(draw(st.integers(0, 4))) if events]
    events += list(outcomes.values())
    events = draw(st.permutations(events))
    events = [event for event in events if isinstance(event, Outcome) or draw(st.integers(0, 4))]
    acts = st.lists(st.sampled_from(["read", "resume", "elsewhere", ""]), min_size=len(events), max_size=len(events))
    return [thing for pair in zip(events, draw(acts), strict=True) for thing in pair], outcomes


@settings(max_examples=150, deadline=None)
@given(journeys())
def test_the_reader_ends_with_the_outcomes_text(
    journey: tuple[list[Piece | Outcome | str], dict[int, Outcome]],
) -> None:
    events, outcomes = journey
    plan = manifest(0, 4, 2)
    heard = RequestText(plan)
    view, screen = View(heard), Screen()
    for event in events:
        if isinstance(event, Outcome):
            heard.settle(event)
        elif isinstance(event, Piece):
            heard.hear([event])
        elif event == "read":
            for slot in heard.slots:
                screen.show(view.frame(slot))
        elif event:
            if event == "elsewhere":  # another replica, which has read the outcomes and heard nothing else
                other = RequestText(plan)
                for settled in heard.outcomes().values():
                    other.settle(settled)
                heard = other
            view = View(heard, screen.place.values())
            screen.last.clear()
    for slot in heard.slots:
        screen.show(view.frame(slot))
    assert view.done
    assert {slot: screen.text.get(slot, "") for slot in outcomes} == {s: o.text for s, o in outcomes.items()}
    for slot, frame in screen.last.items():
        assert frame.result is not None
        assert frame.result.text_sha256 == text_digest(screen.text[slot])
