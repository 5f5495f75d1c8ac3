"""The default model: the same logits and greedy tokens as transformers, and isolation on the real weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference_models import oracle_logits
from transformers import LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.models.llama import LlamaConfig

from inference_svc.backends.reference import ReferenceBackend
from inference_svc.rows import Float32Array, Pack, Span
from inference_svc.verify import CONTROLS, Prompt, Solo, self_test
from inference_svc.verify.checks import neighbour_swap, packed_alone, shared_prefix
from kev.tokens.tokenizer import Tokenizer

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

TEXTS = (
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "法国的首都是哪里？",
    "Once upon a time, in a small village by the sea,",
    "<|im_start|>user\nWhat is 17 + 25?<|im_end|>\n<|im_start|>assistant\n",
    'Extract the date as JSON: "The meeting is on 3 March 2024."',
    "I cannot find my card and I am abroad. What should I do? " * 4,
    "Water boils at 100 degrees Celsius because",
)
STEPS = 64
PAGES_EACH = 12


@pytest.fixture(scope="module")
def prompts(default_model: Path) -> list[tuple[int, ...]]:
    tokenizer = Tokenizer.load(default_model)
    return [tuple(tokenizer.encode_text(text)) for text in TEXTS]


@pytest.fixture(scope="module", params=["fp32", "bf16"])
def backend(request: pytest.FixtureRequest, default_model: Path) -> Iterator[ReferenceBackend]:
    loaded = ReferenceBackend.load(default_model, precision=request.param, pages=PAGES_EACH * len(TEXTS))
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def oracle(default_model: Path) -> Any:
    """The same file through transformers' own reader: sizes and tensors."""
    model = LlamaForCausalLM(LlamaConfig(**load_gguf_checkpoint(str(default_model))["config"])).eval()
    tensors = load_gguf_checkpoint(str(default_model), return_tensors=True, model_to_load=model)["tensors"]
    missing = model.load_state_dict(tensors, strict=False)
    assert missing.missing_keys == ["lm_head.weight"], "only the tied head is not in the file"
    assert not missing.unexpected_keys
    model.tie_weights()
    return model


def _greedy(backend: ReferenceBackend, prompts: list[tuple[int, ...]]) -> tuple[list[list[int]], list[Float32Array]]:
    """All prompts in one pack, 64 greedy tokens each: the tokens, and the logits that chose them."""
    texts = [list(prompt) for prompt in prompts]
    logits: list[list[Float32Array]] = [[] for _ in prompts]
    done = [0] * len(prompts)
    for _ in range(STEPS):
        spans = [_span(number, text[done[number] :], done[number]) for number, text in enumerate(texts)]
        for number, row in enumerate(backend.forward(Pack.of(spans))):
            done[number] = len(texts[number])
            texts[number].append(int(row.argmax()))
            logits[number].append(row)
    return texts, [np.stack(rows) for rows in logits]


def _span(number: int, tokens: list[int], position: int) -> Span:
    table = np.arange(number * PAGES_EACH, (number + 1) * PAGES_EACH, dtype=np.int32)
    return Span(number, np.array(tokens, dtype=np.int32), position, table)


def test_logits_and_64_greedy_tokens_are_those_of_transformers(
    default_model: Path, prompts: list[tuple[int, ...]], oracle: Any
) -> None:
    """Fed our own text, transformers chooses our next token at every step: so its greedy text is ours."""
    backend = ReferenceBackend.load(default_model, pages=PAGES_EACH * len(TEXTS))
    texts, logits = _greedy(backend, prompts)
    for prompt, text, ours in zip(prompts, texts, logits, strict=True):
        theirs = oracle_logits(oracle, np.array(text[:-1], dtype=np.int32))[len(prompt) - 1 :]
        assert np.abs(ours - theirs).max() <= 1e-3
        assert theirs.argmax(axis=1).tolist() == text[len(prompt) :]


def test_the_self_test_passes(backend: ReferenceBackend) -> None:
    report = self_test(backend)
    assert report.passed, report.failures


def test_packed_equals_alone_and_neighbours_do_not_matter(
    backend: ReferenceBackend, prompts: list[tuple[int, ...]]
) -> None:
    runs = [Prompt(prompt, prompt[:2]) for prompt in prompts]
    for check in (
        packed_alone(backend, runs[:3], starts=[0, 1, 0]),
        neighbour_swap(backend, runs[0], [runs[1], runs[2]], [runs[3], runs[4]]),
    ):
        assert check.passed, check


def test_a_shared_prefix_does_not_matter(backend: ReferenceBackend, prompts: list[tuple[int, ...]]) -> None:
    prefix = (prompts[6] * 3)[:130]
    runs = [Prompt(prefix + prompts[number], prompts[number][:1]) for number in (0, 2)]
    check = shared_prefix(backend, runs, [17, 130])
    assert check.passed, check


def test_the_controls_go_red(backend: ReferenceBackend, prompts: list[tuple[int, ...]]) -> None:
    solo = Solo(backend)
    for control in CONTROLS:
        assert not control(backend, [Prompt(prompt) for prompt in prompts[:2]], solo=solo).passed, control.__name__
