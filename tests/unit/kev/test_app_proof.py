"""`kev verify`'s claims hold for a model that keeps its channels apart, and fail for one that does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_lab import FakeModel

from inference_svc.rows import Float32Array, Pack
from kev.app.proof import SHORT, Extent, prompts_of, proof
from kev.tokens.tokenizer import Tokenizer

pytestmark = pytest.mark.model
TEXTS = ("What is the capital of France?", "请问怎么申请退款？", "Name a river in Egypt.", "Is 97 prime?")


@pytest.fixture(scope="module")
def tokenizer(default_model: Path) -> Tokenizer:
    return Tokenizer.load(default_model)


class Leaky(FakeModel):
    """Its logits depend on how many channels are in the forward: one scale over the pack."""

    def forward(self, pack: Pack) -> Float32Array:
        return super().forward(pack) * float(len(pack.spans))


def tokens_of(tokenizer: Tokenizer) -> list[list[int]]:
    return [tokenizer.encode_text(text) for text in TEXTS]


def test_an_isolated_model_keeps_every_claim(tokenizer: Tokenizer) -> None:
    found = list(proof(FakeModel(tokenizer), tokens_of(tokenizer), SHORT))
    assert [check.claim for check in found if not check.passed] == []
    assert sum("control, must fail" in check.claim for check in found) == 3


def test_a_leak_over_the_pack_is_found(tokenizer: Tokenizer) -> None:
    found = list(proof(Leaky(tokenizer), tokens_of(tokenizer), SHORT))
    assert "packed equals alone" in {check.claim for check in found if not check.passed}


def test_continuations_are_as_long_as_asked_and_differ() -> None:
    prompts = prompts_of([[1, 2, 3], [4, 5], [6]], Extent(2, 2, 9, (1,), (1,)))
    assert [len(prompt.answer) for prompt in prompts] == [9, 9]
    assert prompts[0].answer != prompts[1].answer
