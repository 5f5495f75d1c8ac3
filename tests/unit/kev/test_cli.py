"""The command line: what is printed where, and the exit codes. The backend is a fake one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kev.app.cli import ask, run
from kev.app.cli.main import app
from kev.app.logprobs import logprob_lines
from kev.domain.errors import BusUnavailable
from kev.domain.outcome import Audit, ChosenToken, TokenLogprob
from kev.domain.question import Batch, Constraint, Sampling
from kev.domain.result import Frame, SlotResult


class EchoBackend:
    """Answers every question with its own text backwards; refuses empty ones."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    async def ask(self, batch: Batch) -> AsyncGenerator[Frame, None]:
        self.batches.append(batch)
        for slot in reversed(range(len(batch.questions))):
            question = batch.questions[slot]
            if not question.text:
                result = SlotResult("r", slot, status="refused", reason="empty", detail="the question is empty")
            else:
                audit = Audit(channel=f"w1/{slot}", completion_tokens=len(question.text))
                result = SlotResult(
                    "r", slot, question.id, "answered", "stop", question.text[::-1], attempt=1, audit=audit
                )
            yield Frame("r", slot, text=result.text[:2])
            yield Frame("r", slot, text_offset=2, text=result.text[2:], result=result)


Invoke = Callable[..., Result]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> EchoBackend:
    made = EchoBackend()

    @asynccontextmanager
    async def opened(settings: Any, router: str = "") -> AsyncIterator[EchoBackend]:
        if router:
            raise BusUnavailable(f"no answer from {router}")
        yield made

    for module in (ask, run):
        monkeypatch.setattr(module, "opened_backend", opened)
    return made


@pytest.fixture
def kev(backend: EchoBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=stdin)

    return invoke


def test_ask_prints_the_answers_in_the_order_of_the_questions(kev: Invoke) -> None:
    done = kev("ask", "abc", "def")
    assert done.exit_code == 0
    assert done.stdout == "[1] abc\ncba\n\n[2] def\nfed\n\n"


def test_ask_with_one_question_prints_the_answer_alone(kev: Invoke, backend: EchoBackend) -> None:
    done = kev(
        "ask",
        "abc",
        "--max-tokens",
        "7",
        "--isolation",
        "strict",
        "--temperature",
        "0.5",
        "--seed",
        "3",
        "--strategy",
        "round_robin",
    )
    assert done.stdout == "cba\n"
    (question,) = backend.batches[0].questions
    assert (question.max_tokens, question.sampling.seed, backend.batches[0].isolation) == (7, 3, "strict")
    assert backend.batches[0].strategy == "round_robin"


def test_ask_passes_on_what_an_answer_may_be(kev: Invoke, backend: EchoBackend, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}', encoding="utf-8")
    assert kev("ask", "x", "--choice", "yes", "--choice", "no", "--logprobs", "2", "--min-p", "0.1").exit_code == 0
    assert kev("ask", "x", "--json-schema", str(schema), "--repetition-penalty", "1.1").exit_code == 0
    assert kev("ask", "x", "--regex", "[a-c]+", "--top-k", "3").exit_code == 0
    asked = [batch.questions[0] for batch in backend.batches]
    assert [question.constraint for question in asked] == [
        Constraint(choices=("yes", "no")),
        Constraint(json_schema='{"type": "object"}'),
        Constraint(regex="[a-c]+"),
    ]
    assert asked[0].sampling == Sampling(min_p=0.1, logprobs=2)
    assert asked[1].sampling.repetition_penalty == 1.1


def test_ask_shows_log_probabilities_token_by_token() -> None:
    chosen = TokenLogprob(1, b" Paris", -0.25)
    assert logprob_lines((ChosenToken(chosen, (chosen, TokenLogprob(2, b"\xf0", -1.5))),)) == [
        "  -0.2500 ' Paris'   -0.2500 ' Paris'  -1.5000 '\ufffd'"
    ]


def test_ask_says_what_was_not_answered_and_fails(kev: Invoke) -> None:
    done = kev("ask", "abc", "")
    assert done.exit_code == 1
    assert done.stderr == "question 2: refused: empty: the question is empty\n"


def test_run_writes_results_in_the_order_of_the_file(kev: Invoke, tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"text": "abc", "id": "x"}\n"def"\n')
    done = kev("run", "q.jsonl", "--out", "r.jsonl", "--audit", "a.jsonl")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "2 questions in" in done.stderr
    results = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert [(result["slot"], result["id"], result["text"]) for result in results] == [(0, "x", "cba"), (1, "", "fed")]
    audits = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [audit["audit"]["channel"] for audit in audits] == ["w1/0", "w1/1"]


def test_run_reads_standard_input_and_writes_standard_output(kev: Invoke) -> None:
    done = kev("run", "-", stdin="abc\ndef\n")
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == ["cba", "fed"]


def test_run_in_single_mode_writes_the_same(kev: Invoke, backend: EchoBackend) -> None:
    assert kev("run", "-", stdin="abc\ndef\n").stdout == kev("run", "-", "--mode", "single", stdin="abc\ndef\n").stdout
    assert [len(batch.questions) for batch in backend.batches] == [2, 1, 1]


def test_run_gives_questions_the_longest_time_unless_told(kev: Invoke, backend: EchoBackend) -> None:
    kev("run", "-", stdin="abc")
    kev("run", "-", "--timeout-ms", "5000", stdin="abc")
    assert [batch.questions[0].timeout_ms for batch in backend.batches] == [600_000, 5_000]


def test_run_fails_when_a_slot_was_not_answered_but_writes_all(kev: Invoke, tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text('["abc", ""]')
    done = kev("run", "q.json")
    assert done.exit_code == 1
    assert [json.loads(line)["status"] for line in done.stdout.splitlines()] == ["answered", "refused"]
    assert "1 answered, 1 refused" in done.stderr
    assert "slot 1: refused: empty: the question is empty\n" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a Linux device")
@pytest.mark.parametrize("option", ["--out", "--audit"])
def test_a_full_disk_is_one_clear_line(kev: Invoke, option: str) -> None:
    done = kev("run", "-", option, "/dev/full", stdin="abc")
    assert done.exit_code == 1
    assert f"error: {option} /dev/full: cannot be written (No space left on device)\n" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["ask", "x", "--choice", "a", "--regex", "b"],
            "error: --choice, --json-schema, --regex: give one of the three",
        ),
        (["ask", "x", "--regex", "("], "error: constraint.regex: a ( is not closed"),
        (["ask", "x", "--json-schema", "/nowhere.json"], "error: --json-schema /nowhere.json: cannot be read"),
        (["ask", "x", "--logprobs", "21"], "error: logprobs: must be a whole number from 0 to 20"),
        (["run", "absent.jsonl"], "error: absent.jsonl: cannot be read (No such file or directory)"),
        (
            ["run", "-", "--strategy", "best"],
            "error: strategy: must be one of round_robin, consistent_hash, semantic_hash, length_aware",
        ),
        (["run", "-", "--isolation", "weak"], "error: isolation: must be one of strict, shared, loose"),
        (["run", "-", "--out", "no/such/place"], "error: --out no/such/place: cannot be written"),
        (["run", "-", "--out", "r.jsonl", "--audit", "./r.jsonl"], "error: --audit r.jsonl: must be another file"),
        (["run", "-", "--set", "core.precision=float32"], "error: core.precision: Input should be 'fp32'"),
        (["run", "-", "--set", "nonsense"], "error: --set nonsense: must be SECTION.KEY=VALUE"),
        (["run", "-", "--config", "absent.yaml"], "error: absent.yaml: cannot be read"),
        (["run", "-", "--router", "127.0.0.1:1"], "error: no answer from 127.0.0.1:1"),
        (["ask", "x", "--temperature", "9"], "error: temperature: must be a number from 0 to 2"),
        (
            ["ask", "x", "--set", "core.precisio=fp32"],
            "error: core.precisio: unknown key; did you mean core.precision?",
        ),
        (["up", "--set", "core.model_path=/no/model"], "error: core.model_path: '/no/model' does not exist"),
        (["serve", "--set", "core.model_path=/no/model", "--port", "0"], "error: core.model_path: '/no/model'"),
    ],
)
def test_a_mistake_is_one_clear_line(kev: Invoke, arguments: list[str], line: str) -> None:
    done = kev(*arguments, stdin="abc\n")
    assert done.exit_code == 1, done.output
    assert done.stderr.startswith(line), done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("option", ["--out", "--audit"])
def test_results_are_not_written_over_the_questions(kev: Invoke, tmp_path: Path, option: str) -> None:
    questions = tmp_path / "questions.txt"
    questions.write_text("abc\n")
    (tmp_path / "link.txt").symlink_to(questions)
    for place in ("questions.txt", "./questions.txt", "link.txt"):
        done = kev("run", "questions.txt", option, place)
        assert (done.exit_code, done.stdout) == (1, "")
        assert "must be another file than the file of questions" in done.stderr
    assert questions.read_text() == "abc\n"


def test_standard_input_is_no_file_that_results_could_be_written_over(kev: Invoke, tmp_path: Path) -> None:
    done = kev("run", "-", "--out", "-", stdin="abc\n")
    assert done.exit_code == 0, done.output
    assert "cba" in (tmp_path / "-").read_text()


@pytest.mark.parametrize("command", ["ask", "run", "serve"])
def test_an_empty_address_of_a_cluster_does_not_start_a_model_here(kev: Invoke, command: str) -> None:
    given = [command] if command == "serve" else [command, "-"]
    done = kev(*given, "--router", "", stdin="abc\n")
    assert done.exit_code == 2, done.output
    assert "must be HOST:PORT" in done.stderr
    assert done.stdout == ""


def test_an_unexpected_error_is_a_line_too(kev: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(ask, "batch_of", broken)
    done = kev("ask", "abc")
    assert done.exit_code == 70
    assert done.stderr == "error: unexpected ZeroDivisionError: inside (KEV_LOG_LEVEL=debug shows where)\n"


def test_wrong_usage_is_exit_code_2(kev: Invoke) -> None:
    assert kev("run").exit_code == 2
    assert kev("ask", "x", "--max-tokens", "0").exit_code == 2
    assert kev("nonsense").exit_code == 2


def test_version_is_printed(kev: Invoke) -> None:
    assert kev("version").stdout.startswith("kev ")


def test_ctrl_c_while_modules_are_read_leaves_no_traceback() -> None:
    """Stands in for the moment: reading one of the command's modules raises what Ctrl-C raises."""
    code = (
        "import sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'kev.app.cli.ask': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "import kev.app.cli.main\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (130, "")


def test_ctrl_c_while_the_command_line_is_read_leaves_no_traceback() -> None:
    """Stands in for the moment: reading a command's options raises what Ctrl-C raises."""
    code = (
        "import sys, typer.main\n"
        "import kev.app.cli.main as command\n"
        "def interrupted(*given): raise KeyboardInterrupt\n"
        "typer.main.get_params_from_function = interrupted\n"
        "sys.argv = ['kev', 'version']\n"
        "command.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (130, "")
