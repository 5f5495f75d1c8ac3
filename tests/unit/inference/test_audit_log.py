"""What a desk's forwards leave in the log, and what a check of that log says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit_lab import PREFIX, SOURCE, Lab, asked
from inference_fakes import FakeBackend, letters

from inference_svc.audit.check import CannotCheck, check_file
from inference_svc.audit.draw import BAND, WRONG, draw, mask_of
from inference_svc.audit.files import RotatingFile
from inference_svc.audit.record import NotARecord, record_of
from inference_svc.audit.replay import OtherModel, Replay
from inference_svc.audit.trail import TrailOptions
from inference_svc.audit.writer import Waiting, Writer
from inference_svc.channels import Kind, Part


def _replay(variant: str = "fake-1", pages: int = 64) -> Replay:
    return Replay(FakeBackend(variant=variant, pages=pages), SOURCE.model)


def test_every_forward_is_a_line_and_nobody_sees_another(tmp_path: Path) -> None:
    lab = asked(tmp_path / "w1.jsonl")
    records = lab.close()
    assert len(records) == len(lab.backend.packs) == lab.counts["written"]
    assert [record.forward for record in records] == list(range(1, len(records) + 1))
    for record, pack in zip(records, lab.backend.packs, strict=True):
        assert [part.channel for part in record.layout] == [span.channel for span in pack.spans]
        assert sum(part.count for part in record.layout) == pack.rows
        assert record.cells.cross == 0
    assert sum(record.cells.granted for record in records) > 0
    verdict = check_file(lab.path, _replay())
    assert verdict.passed, verdict.faults
    assert verdict.logits_equal == sum(part.wanted for record in records for part in record.layout)
    assert (verdict.logits_different, verdict.logits_skipped, verdict.cross) == (0, 0, 0)


def test_a_small_store_computes_contexts_afresh(tmp_path: Path) -> None:
    lab = asked(tmp_path / "w1.jsonl")
    lab.close()
    verdict = check_file(lab.path, _replay(pages=3))
    assert (verdict.passed, verdict.logits_skipped) == (True, 0)


def test_a_share_of_the_forwards_can_be_checked_on_its_own(tmp_path: Path) -> None:
    lab = asked(tmp_path / "w1.jsonl", options=TrailOptions(rate=0.4, tokens=True, logits=True))
    assert len(lab.close()) == int(0.4 * len(lab.backend.packs))
    verdict = check_file(lab.path, _replay())
    assert verdict.passed, verdict.faults
    assert verdict.logits_equal > 0
    assert verdict.logits_skipped == 0


def test_without_being_asked_no_text_is_logged(tmp_path: Path) -> None:
    lab = asked(tmp_path / "w1.jsonl", options=TrailOptions())
    lab.close()
    for line in lab.path.read_text().splitlines():
        for channel in json.loads(line)["channels"]:
            assert not {"tokens", "context", "logits"} & set(channel)
    assert check_file(lab.path).passed


def test_the_log_belongs_to_its_user_alone(tmp_path: Path) -> None:
    lab = asked(tmp_path / "deep" / "w1.jsonl")
    lab.close()
    assert lab.path.stat().st_mode & 0o077 == 0


def test_files_are_turned_over_and_each_can_be_checked(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "w1.jsonl", most_bytes=3000)
    for ticket in range(1, 6):
        lab.ask(ticket, [*PREFIX, ticket], tokens=10)
        lab.run()
    lab.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["w1.jsonl", "w1.jsonl.1", "w1.jsonl.2", "w1.jsonl.3"]
    for name in names:
        assert (tmp_path / name).stat().st_size <= 3000
        assert check_file(tmp_path / name, _replay()).passed


def test_channels_are_used_again_and_told_apart(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "w1.jsonl")
    for round_ in range(3):
        lab.ask(1, [10 + round_, 9, 8])
        lab.run()
    runs = {part.run for record in lab.close() for part in record.layout}
    assert len(runs) == 3
    assert check_file(lab.path, _replay()).passed


# -- controls: each must be red ------------------------------------------------------
def test_a_wrong_page_handed_to_the_kernel_is_red(tmp_path: Path) -> None:
    """The table of one run is bent to a page that belongs to its neighbour, as a broken allocator would."""
    lab = Lab(tmp_path / "w1.jsonl")
    lab.ask(1, [10, 11, 12], tokens=6)
    lab.ask(2, [20, 21, 22], tokens=6)
    plan = lab.desk.plan()
    assert plan is not None
    lab.desk.run(plan)
    one, two = (step.run for step in plan.steps)
    one.table[0] = two.table[0]
    lab.run()
    assert any(record.cells.cross > 0 for record in lab.close())
    verdict = check_file(lab.path)
    assert not verdict.passed
    assert "of another channel are visible" in verdict.faults[0]


def test_a_page_that_the_books_do_not_give_is_red_even_if_nobody_else_is_there(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "w1.jsonl")
    lab.ask(1, [10, 11, 12], tokens=3)
    lab.view = lambda channel: (frozenset(), frozenset())
    lab.run()
    assert all(record.cells.cross > 0 for record in lab.close())


def test_a_wrong_grant_is_red(tmp_path: Path) -> None:
    """The books grant a page that the channel writes: others would read it."""
    lab = Lab(tmp_path / "w1.jsonl")
    lab.ask(1, [10, 11, 12], tokens=3)
    lab.view = lambda channel: (lab.memory._allocator.view(channel)[0],) * 2
    lab.run()
    assert all(record.cells.cross > 0 for record in lab.close())


def _bend(whole: dict[str, Any]) -> None:
    whole["channels"][0]["pages"][0] = whole["channels"][1]["pages"][-1]


def _move(whole: dict[str, Any]) -> None:
    whole["channels"][0]["pages"][0] = 63


def _other_token(whole: dict[str, Any]) -> None:
    whole["channels"][-1]["tokens"][0] ^= 1


def _other_logits(whole: dict[str, Any]) -> None:
    whole["channels"][-1]["logits"] = ["0" * 32]


def _fewer_cells(whole: dict[str, Any]) -> None:
    whole["cells"]["own"] -= 1


def _offset(whole: dict[str, Any]) -> None:
    whole["channels"][1]["offset"] += 1


@pytest.mark.parametrize("change", [_bend, _move, _other_token, _other_logits, _fewer_cells, _offset])
def test_a_changed_line_is_red(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    lab = asked(tmp_path / "w1.jsonl")
    lab.close()
    lines = lab.path.read_text().splitlines()
    whole = json.loads(lines[-2])
    change(whole)
    lines[-2] = json.dumps(whole)
    lab.path.write_text("\n".join(lines) + "\n")
    assert not check_file(lab.path, _replay()).passed


def test_a_run_that_steps_back_or_changes_its_pages_is_red(tmp_path: Path) -> None:
    records = asked(tmp_path / "w1.jsonl", options=TrailOptions()).close()
    last = records[-1]
    lines = [record.line() for record in records]
    (tmp_path / "again.jsonl").write_text("".join([*lines, lines[-1]]))
    assert "a second time" in check_file(tmp_path / "again.jsonl").faults[0]
    part = last.layout[0]
    moved = replace(part, pages=tuple(page + 40 for page in part.pages), granted=frozenset())
    other = type(last).of(SOURCE, last.forward, 0, (moved,), last.texts[:1])
    (tmp_path / "moved.jsonl").write_text("".join([*lines[:-1], other.line()]))
    assert "not those that it had before" in check_file(tmp_path / "moved.jsonl").faults[0]


def test_another_model_is_said_not_compared(tmp_path: Path) -> None:
    lab = asked(tmp_path / "w1.jsonl")
    lab.close()
    with pytest.raises(OtherModel, match="on fake-1; loaded is model-digest on fake-2"):
        check_file(lab.path, _replay("fake-2"))


# -- files that are no log -----------------------------------------------------------
def test_what_is_no_log_cannot_be_checked(tmp_path: Path) -> None:
    with pytest.raises(CannotCheck, match="cannot be read"):
        check_file(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(CannotCheck, match="no audit records"):
        check_file(tmp_path / "empty.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\nnonsense\n[]\n')
    assert check_file(tmp_path / "bad.jsonl").faulty == 3


def test_a_line_cut_off_by_a_crash_is_no_fault(tmp_path: Path) -> None:
    lab = asked(tmp_path / "w1.jsonl")
    count = len(lab.close())
    text = lab.path.read_text()
    lab.path.write_text(text[:-40])
    assert check_file(lab.path).forwards == count - 1


@pytest.mark.parametrize("text", ["{", "3", '{"audit":2}', '{"audit":1,"worker":"w"}'])
def test_bad_lines_are_refused_by_name(text: str) -> None:
    with pytest.raises(NotARecord):
        record_of(text)


# -- the writer ----------------------------------------------------------------------
def test_what_finds_no_room_is_dropped_and_counted(tmp_path: Path) -> None:
    counts: list[str] = []
    go, began = threading.Event(), threading.Event()

    def slow() -> str:
        began.set()
        assert go.wait(20)
        return "a\n"

    writer = Writer(RotatingFile(tmp_path / "log", 1 << 20, 0), lambda what, count: counts.append(what))
    assert writer.put(Waiting(slow, 60 << 20))
    assert began.wait(20)
    assert not writer.put(Waiting(lambda: "b\n", 8 << 20))
    assert writer.put(Waiting(lambda: "c\n", 1))
    go.set()
    writer.close()
    assert counts == ["dropped", "written", "written"]
    assert (tmp_path / "log").read_text() == "a\nc\n"
    assert not writer.put(Waiting(lambda: "d\n", 1))


def test_a_full_disk_loses_records_not_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: RotatingFile, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RotatingFile, "write", full)
    lab = Lab(tmp_path / "w1.jsonl")
    lab.ask(1, [10, 11], tokens=3)
    ends = lab.run()
    lab.writer.close()
    assert ends[1].tokens
    assert lab.counts["dropped"] == len(lab.backend.packs)
    assert set(ends[1].text) <= set(letters(range(48)))


# -- the picture ---------------------------------------------------------------------
def test_the_picture_shows_blocks_and_the_band(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    from PIL import Image

    records = asked(tmp_path / "w1.jsonl").close()
    record = next(record for record in records if record.cells.granted and len(record.layout) > 2)
    cells, starts = mask_of(record.layout)
    painted = int((cells != 255).any(axis=2).sum())
    assert painted == record.cells.own + record.cells.granted
    assert int((cells == BAND).all(axis=2).sum()) == record.cells.granted
    assert len(starts) == len(record.layout) + 1
    draw(record, tmp_path / "mask.png")
    with Image.open(tmp_path / "mask.png") as picture:
        assert picture.format == "PNG"
        assert picture.width > 100
    bent = replace(record, layout=(replace(record.layout[0], foreign=frozenset(record.layout[0].pages[:1])),))
    assert (mask_of(bent.layout)[0] == WRONG).all(axis=2).any()


def test_a_chain_of_contexts_and_a_conversation_are_no_cross(tmp_path: Path) -> None:
    """System prompt, pool, batch prefix and kept pages: granted, whoever reads them; and logits are equal again."""
    lab = Lab(tmp_path / "w1.jsonl")
    chain = [*PREFIX, *range(28, 46), *range(8, 30)]
    parts = (Part(Kind.POOL, 38), Part(Kind.BATCH, 60))
    for turn in range(3):
        for ticket in (1, 2, 3):
            prompt = [*chain, ticket, *range(9, 9 + 10 * turn)]
            lab.ask(ticket + 8 * turn, prompt, prefix=20, parts=parts, tenant="t", keep=True)
        lab.run()
    records = lab.close()
    assert [record.cells.cross for record in records] == [0] * len(records)
    assert sum(record.cells.granted for record in records) > 0
    verdict = check_file(lab.path, _replay())
    assert verdict.passed, verdict.faults
    assert verdict.logits_skipped == 0
