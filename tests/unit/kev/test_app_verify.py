"""`kev verify` holds for a model that isolates, fails for one that does not, and tells bad use apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_lab import FakeModel
from typer.testing import CliRunner

from inference_svc.loading import LoadedModel
from inference_svc.rows import Float32Array, Pack
from inference_svc.verify import proof, setup
from kev.app.cli.main import app
from kev.config.settings import Settings
from kev.tokens.tokenizer import Tokenizer

pytestmark = pytest.mark.model
TINY = replace(proof.SHORT, questions=4, steps=3, served_questions=3, served_steps=3, rounds=1, threads=(2,))
Run = Callable[..., Any]


class Leaky(FakeModel):
    """Its logits depend on how many channels are in the forward."""

    def forward(self, pack: Pack) -> Float32Array:
        return super().forward(pack) * float(len(pack.spans))


@pytest.fixture(scope="module")
def tokenizer(default_model: Path) -> Tokenizer:
    return Tokenizer.load(default_model)


@pytest.fixture
def run(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``kev verify`` over a fake model."""

    def with_model(model: type[FakeModel], *arguments: str) -> Any:
        def load(settings: Settings) -> LoadedModel:
            return LoadedModel(model(tokenizer), tokenizer, "fake.gguf", "digest")

        monkeypatch.setattr(setup, "load_model", load)
        monkeypatch.setattr(proof, "SHORT", TINY)
        return CliRunner().invoke(app, ["verify", *arguments])

    return with_model


def test_an_isolated_model_keeps_every_claim(run: Run) -> None:
    result = run(FakeModel, "--json")
    report = json.loads(result.stdout)
    assert [finding for finding in report["findings"] if not finding["passed"]] == []
    assert result.exit_code == 0
    assert report["passed"]
    claims = {finding["claim"] for finding in report["findings"]}
    assert {"packed equals alone", "seeded samples are the same", "a prefix of 130 tokens: hit equals miss"} <= claims
    assert sum(finding["kind"] == "control" for finding in report["findings"]) == 4


def test_a_leak_over_the_pack_is_found(run: Run) -> None:
    result = run(Leaky, "--json")
    failed = {finding["claim"] for finding in json.loads(result.stdout)["findings"] if not finding["passed"]}
    assert result.exit_code == 1
    assert {"packed equals alone", "random neighbours do not matter", "as the worker serves it: split"} <= failed


def test_the_table_names_each_claim_and_its_verdict(run: Run) -> None:
    text = run(FakeModel).stdout
    assert "holds" in text
    assert "packed equals alone" in text
    assert "FAILS" not in text


def test_a_users_own_questions_are_tried(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("Why is the sky blue?\n请问怎么退款？\n")
    report = json.loads(run(FakeModel, str(file), "--json").stdout)
    assert report["questions"] == proof.FEWEST
    assert report["passed"]


def test_a_question_that_does_not_fit_is_named(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text("short\n" + "word " * 3000 + "\n")
    result = run(FakeModel, str(file))
    assert result.exit_code == 2
    assert "question 2:" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--precision", "fp17"], "core.precision"),
        (["--backend", "cuda"], "core.backend"),
        (["no-such-file"], "no-such-file"),
        (["--set", "core.max_context=100"], "core.max_context"),
    ],
)
def test_bad_use_is_told_apart_from_a_failed_claim(run: Run, arguments: list[str], named: str) -> None:
    result = run(FakeModel, *arguments)
    assert result.exit_code == 2
    assert named in result.stderr
