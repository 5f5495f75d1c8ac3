"""What the command line makes of contexts, prefixes and files' keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kev.app.batchfile.read import BadFile, read_questions
from kev.app.cli.asking import AskOptions
from kev.app.cli.main import app
from kev.client import AsyncClient
from kev.client.queries import batch_of
from kev.domain.context import Context
from kev.domain.errors import InvalidArgument


def test_a_context_makes_the_batch_loose_unless_something_else_is_said(tmp_path: Path) -> None:
    rules = tmp_path / "rules.txt"
    rules.write_text("In Latin.", encoding="utf-8")
    assert AskOptions().whole() == {}
    assert AskOptions(context="manual").whole() == {"isolation": "loose"}
    strict = AskOptions(context="manual", isolation="strict", prefix="In Greek.")
    assert strict.whole() == {"isolation": "strict", "prefix": "In Greek."}
    assert AskOptions(prefix_file=rules).whole() == {"prefix": "In Latin."}
    with pytest.raises(InvalidArgument, match="one of them"):
        AskOptions(prefix="In Greek.", prefix_file=rules).whole()
    with pytest.raises(BadFile, match="cannot be read"):
        AskOptions(prefix_file=tmp_path / "none.txt").whole()


def test_an_unknown_key_of_a_query_is_named_and_a_files_own_columns_are_not(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"queries\[1\]\.answer: unknown key; allowed: text, messages, id"):
        batch_of(["One?", {"text": "Two?", "answer": "2"}])
    file = tmp_path / "q.jsonl"
    file.write_text('{"text": "Two?", "answer": "2", "context_pool": "manual"}\n')
    (question,) = read_questions(str(file), max_tokens=3)
    assert (question.text, question.context_pool, question.max_tokens) == ("Two?", "manual", 3)
    file.write_text('{"text": "Two?", "context_pol": "manual"}\n')
    with pytest.raises(BadFile, match=r"q\.jsonl:1: context_pol: unknown key; did you mean context_pool\?"):
        read_questions(str(file))


def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    document = tmp_path / "d.txt"
    document.write_text("text")
    for words in (["create", "a", str(document)], ["list"], ["delete", "a"]):
        found = CliRunner().invoke(app, ["context", *words, "--router", "127.0.0.1:1"])
        assert found.exit_code == 1
        assert found.stderr.startswith("error: no answer from the service")
    found = CliRunner().invoke(app, ["context", "create", "a", str(tmp_path / "none.txt"), "--router", "127.0.0.1:1"])
    assert (found.exit_code, "cannot be read" in found.stderr) == (1, True)


def test_a_list_of_no_contexts_says_so_beside_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(client: AsyncClient) -> list[Context]:
        return []

    monkeypatch.setattr(AsyncClient, "contexts", none)
    found = CliRunner().invoke(app, ["context", "list"])
    assert (found.exit_code, found.stdout, found.stderr) == (0, "", "there are no contexts\n")
