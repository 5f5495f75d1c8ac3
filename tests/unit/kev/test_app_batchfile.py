"""Files of questions: every format read, every mistake told with its place, results without what varies."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kev.app.batchfile.progress import RunProgress
from kev.app.batchfile.read import BadFile, read_questions
from kev.app.batchfile.run import BATCH, IN_FLIGHT, REFUSALS, TRIES_BEFORE, RunMode, run_questions
from kev.app.batchfile.write import audit_line, result_line
from kev.domain.errors import BusUnavailable, InvalidArgument, Overloaded
from kev.domain.outcome import Audit, ChosenToken, TokenLogprob
from kev.domain.question import Batch, Question, Strategy
from kev.domain.result import Frame, ResumePoint, SlotResult


def write(tmp_path: Path, name: str, text: str | bytes) -> str:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


LIST = '["One?", {"text": "Two?", "id": 2, "category": "ignored"}]'
LINES = '"One?"\n\n{"text": "Two?", "id": 2, "category": "ignored"}\r\n'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.json", LIST),
        ("q.jsonl", LINES),
        ("q.ndjson", LINES),
        ("q", LIST),
        ("q", '{"text": "One?"}\n{"text": "Two?", "id": "2"}'),
        ("q.json", "\ufeff" + LIST),
    ],
)
def test_lists_and_lines_of_json_hold_texts_and_objects(tmp_path: Path, name: str, text: str) -> None:
    questions = read_questions(write(tmp_path, name, text))
    assert [(question.text, question.id) for question in questions] == [("One?", ""), ("Two?", "2")]


def test_text_lines_are_questions(tmp_path: Path) -> None:
    text = "One?\r\n\n  Two?  \n[3] is it?\n{not json\n"
    for name in ("q.txt", "q", "q.md"):
        questions = read_questions(write(tmp_path, name, text))
        assert [question.text for question in questions] == ["One?", "Two?", "[3] is it?", "{not json"]


def test_a_line_separator_inside_a_text_is_no_new_line(tmp_path: Path) -> None:
    assert len(read_questions(write(tmp_path, "q.jsonl", '{"text": "a\u2028b\x85c"}'))) == 1


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("请问？\nTwo?".encode())))
    assert [question.text for question in read_questions("-")] == ["请问？", "Two?"]


def test_items_carry_conversations_and_limits(tmp_path: Path) -> None:
    item = {
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 5,
        "temperature": 0.5,
        "seed": 3,
        "stop": ["x"],
    }
    (question,) = read_questions(write(tmp_path, "q.json", json.dumps([item])), max_tokens=9, timeout_ms=1000)
    assert question.messages[0].content == "Hi"
    assert (question.max_tokens, question.timeout_ms) == (5, 1000), "the item's own limit wins"
    assert (question.sampling.temperature, question.sampling.seed, question.sampling.stop) == (0.5, 3, ("x",))


def test_an_empty_question_is_left_to_the_router(tmp_path: Path) -> None:
    assert [question.text for question in read_questions(write(tmp_path, "q.json", '["", "a"]'))] == ["", "a"]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("q.json", "", "q.json: is not valid JSON"),
        ("q.json", "{}", "q.json: must hold a JSON list of questions"),
        ("q.json", "[]", "q.json: holds no questions"),
        ("q.jsonl", "\n \n", "q.jsonl: holds no questions"),
        ("q.jsonl", '{"text": "a"}\n{"text": ', "q.jsonl:2: is not valid JSON"),
        ("q.jsonl", '{"text": "a"}\n5', "q.jsonl:2: must be a text, or an object with text or messages"),
        ("q.jsonl", '{"txet": "a"}', "q.jsonl:1: must hold text or messages"),
        ("q.json", '[{"text": "a", "max_tokens": 0}]', "q.json[0]: max_tokens: must be a whole number"),
        ("q.json", '[{"text": "a", "temperature": NaN}]', "q.json[0]: temperature: must be a number"),
        ("q.json", "[" * 100_000, "q.json: is not valid JSON"),
        ("q.txt", b"caf\xe9", "q.txt: must be UTF-8; byte 3 is not"),
    ],
)
def test_a_mistake_is_told_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str | bytes, line: str
) -> None:
    write(tmp_path, name, text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadFile) as caught:
        read_questions(name)
    assert str(caught.value).startswith(line)


def test_a_missing_file_and_a_bad_limit_are_told() -> None:
    with pytest.raises(BadFile, match=r"absent.jsonl: cannot be read \(No such file or directory\)"):
        read_questions("absent.jsonl")
    with pytest.raises(InvalidArgument, match="max_tokens"):
        read_questions("absent.jsonl", max_tokens=0)


class FakeBackend:
    """Answers at once; remembers what was asked."""

    def __init__(self, refusals: int = 0, breaks: int = 0, answers: int = 1, places: int = BATCH) -> None:
        self.batches: list[Batch] = []
        self.running = self.most_running = 0
        self._refusals = refusals
        self._breaks = breaks
        self._answers = answers
        self._places = places

    async def ask(self, batch: Batch) -> AsyncGenerator[Frame, None]:
        if len(batch.questions) > self._places:
            raise Overloaded("never room for so many", retry_after_ms=1)
        if self._refusals:
            self._refusals -= 1
            raise Overloaded("full", retry_after_ms=1)
        self.batches.append(batch)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        broken = self._breaks > 0
        self._breaks -= broken
        try:
            for place, slot in enumerate(reversed(range(len(batch.questions)))):
                await asyncio.sleep(0)
                if broken and place == self._answers:
                    raise BusUnavailable("away")
                question = batch.questions[slot]
                result = SlotResult(request_id="r", slot=slot, id=question.id, status="answered", text=question.text)
                yield Frame(request_id="r", slot=slot, result=result)
        finally:
            self.running -= 1

    def stream(self, request_id: str, resume: Iterable[ResumePoint] = ()) -> AsyncGenerator[Frame, None]:
        raise NotImplementedError

    async def wait(self, request_id: str, wait_s: float | None) -> list[SlotResult]:
        raise NotImplementedError

    async def cancel(self, request_id: str, slots: Sequence[int] = ()) -> tuple[int, ...]:
        raise NotImplementedError

    async def healthy(self) -> bool:
        return True

    async def close(self) -> None:
        return None


async def run(backend: FakeBackend, count: int, mode: RunMode, **options: Any) -> tuple[list[SlotResult], int]:
    questions = [Question(text=f"q{number}", id=str(number)) for number in range(count)]
    ended: list[SlotResult] = []
    results = [result async for result in run_questions(backend, questions, mode, ended.append, **options)]
    return results, len(ended)


@pytest.mark.parametrize("mode", list(RunMode))
async def test_slots_are_numbered_over_the_file_and_come_in_its_order(mode: RunMode) -> None:
    count = 2 * BATCH + 44
    results, ended = await run(FakeBackend(), count, mode)
    assert [result.slot for result in results] == list(range(count))
    assert [result.text for result in results] == [f"q{number}" for number in range(count)]
    assert ended == count


async def test_a_long_file_goes_in_batches_a_few_at_a_time() -> None:
    backend = FakeBackend()
    await run(backend, 4 * BATCH + 1, RunMode.BATCHED, whole=Batch((), max_parallel=7, strategy=Strategy.ROUND_ROBIN))
    assert [len(batch.questions) for batch in backend.batches] == [BATCH] * 4 + [1]
    assert backend.most_running == IN_FLIGHT
    assert {(batch.max_parallel, batch.strategy) for batch in backend.batches} == {(7, Strategy.ROUND_ROBIN)}


async def test_single_asks_one_question_a_forward_one_after_the_other() -> None:
    backend = FakeBackend()
    await run(backend, 5, RunMode.SINGLE)
    assert [(len(batch.questions), batch.max_parallel) for batch in backend.batches] == [(1, 1)] * 5
    assert backend.most_running == 1


async def test_a_run_waits_for_room() -> None:
    results, _ = await run(FakeBackend(refusals=3), 3, RunMode.BATCHED)
    assert len(results) == 3


async def test_a_batch_that_never_finds_room_as_a_whole_goes_on_in_parts() -> None:
    backend = FakeBackend(places=5)
    async with asyncio.timeout(10):
        results, ended = await run(backend, BATCH + 3, RunMode.BATCHED)
    assert [result.slot for result in results] == list(range(BATCH + 3))
    assert ended == BATCH + 3
    assert sum(len(batch.questions) for batch in backend.batches) == BATCH + 3
    assert len({batch.request_id for batch in backend.batches}) == len(backend.batches)


async def test_what_is_left_of_such_a_batch_goes_on_in_parts_of_the_size_that_was_found() -> None:
    backend = FakeBackend(places=1)
    refused: list[Overloaded] = []
    async with asyncio.timeout(10):
        results, ended = await run(backend, BATCH, RunMode.BATCHED, refused=refused.append)
    assert [result.slot for result in results] == list(range(BATCH))
    assert ended == BATCH
    assert len(refused) == REFUSALS * (BATCH.bit_length() - 1), "each size is tried once, not once for each part"


async def test_a_batch_of_which_something_was_heard_does_not_go_on_in_parts() -> None:
    backend = FakeBackend()
    heard = 0

    async def ask(batch: Batch) -> AsyncGenerator[Frame, None]:
        nonlocal heard
        backend.batches.append(batch)
        heard += 1
        for slot in range(len(batch.questions) if heard > REFUSALS + 1 else 1):
            result = SlotResult(request_id="r", slot=slot, id="", status="answered", text="x")
            yield Frame(request_id="r", slot=slot, result=result)
        if heard <= REFUSALS + 1:
            raise Overloaded("full", retry_after_ms=1)

    backend.ask = ask  # type: ignore[method-assign]
    results, ended = await run(backend, 4, RunMode.BATCHED)
    assert [len(batch.questions) for batch in backend.batches] == [4] * (REFUSALS + 2)
    assert (len(results), ended) == (4, 4)
    assert len({batch.request_id for batch in backend.batches}) == 1


def test_a_run_that_waits_for_room_says_so_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("kev.app.batchfile.progress.time.monotonic", lambda: now)
    with RunProgress(2) as progress:
        for now in (1.0, 6.0, 7.0, 60.0, 67.0):
            progress.refused(Overloaded(f"no worker is ready [{now:g}]\x1b"))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"waiting: no worker is ready [{at}]\ufffd" for at in (6, 67)]


async def test_a_run_goes_on_when_a_service_comes_back_and_counts_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kev.app.batchfile.run.LONGEST_PAUSE_S", 0.0)
    backend = FakeBackend(breaks=2)
    results, ended = await run(backend, BATCH + 3, RunMode.BATCHED)
    assert [result.slot for result in results] == list(range(BATCH + 3))
    assert ended == BATCH + 3
    ids = [batch.request_id for batch in backend.batches]
    assert (len(ids), len(set(ids)), all(ids)) == (4, 2, True)


async def test_a_run_gives_up_on_a_service_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kev.app.batchfile.run.LONGEST_PAUSE_S", 0.0)
    backend = FakeBackend(breaks=1_000, answers=0)
    with pytest.raises(BusUnavailable, match="away"):
        await run(backend, 1, RunMode.BATCHED)
    assert len(backend.batches) == TRIES_BEFORE


async def test_leaving_a_run_ends_what_is_under_way() -> None:
    backend = FakeBackend()
    questions = [Question(text="q")] * (3 * BATCH)
    running = run_questions(backend, questions, RunMode.BATCHED, lambda result: None)
    await anext(running)
    await running.aclose()
    assert backend.running == 0


def test_a_result_line_holds_nothing_that_varies() -> None:
    audit = Audit(channel="w1/3", accepted_ms=5, elapsed_ms=7.5, prompt_tokens=4, completion_tokens=2, attempts=2)
    result = SlotResult(
        "req-1", 3, "mine", "answered", "stop", "你好\u2028", attempt=2, warnings=("length_warning: cut",), audit=audit
    )
    assert json.loads(result_line(result)) == {
        "slot": 3,
        "id": "mine",
        "status": "answered",
        "finish_reason": "stop",
        "text": "你好\u2028",
        "reason": "",
        "prompt_tokens": 4,
        "completion_tokens": 2,
        "warnings": ["length_warning: cut"],
    }
    told = json.loads(audit_line(result))
    assert (told["audit"]["channel"], told["attempt"], told["request_id"]) == ("w1/3", 2, "req-1")


def test_log_probabilities_are_in_both_files_where_they_were_asked_for() -> None:
    chosen = TokenLogprob(9, b"\xe4\xbd", -0.5)
    result = SlotResult("r", 0, "", "answered", "stop", "x", logprobs=(ChosenToken(chosen, (chosen,)),))
    record = {"token": 9, "text": "\ufffd", "bytes": [228, 189], "logprob": -0.5}
    for line in (result_line(result), audit_line(result)):
        assert json.loads(line)["logprobs"] == [{**record, "top": [record]}]


def test_what_else_a_files_messages_hold_is_its_own_affair(tmp_path: Path) -> None:
    text = '[{"messages": [{"role": "user", "content": "One?", "name": "anna"}]}]'
    (question,) = read_questions(write(tmp_path, "chat.json", text))
    assert [(turn.role, turn.content) for turn in question.messages] == [("user", "One?")]
