"""The native backend says what transformers says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inference_models import oracle_logits, random_model, tokens_of
from native_support import greedy, load, prompts, score
from test_native_bits import SIZES
from transformers import LlamaConfig, LlamaForCausalLM

from inference_svc.models import load_weights

pytestmark = pytest.mark.timeout(600)
"""The first test may have to compile the kernels."""


@pytest.mark.parametrize("family", SIZES)
def test_float32_logits_of_every_family(save_tiny: Callable[..., Path], family: str) -> None:
    tokens = np.array(tokens_of(3, 100), np.int32)
    expected = oracle_logits(random_model(family, **SIZES[family]), tokens)
    found = score(load(save_tiny(family, **SIZES[family]), "fp32"), tokens, 100)
    assert np.abs(found - expected).max() < 2e-4


@pytest.mark.parametrize("family", SIZES)
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_lower_precisions_stay_near(save_tiny: Callable[..., Path], family: str, precision: str) -> None:
    tokens = np.array(tokens_of(3, 100), np.int32)
    expected = oracle_logits(random_model(family, **SIZES[family]), tokens)
    found = score(load(save_tiny(family, **SIZES[family]), precision), tokens, 100)
    assert np.abs(found - expected).mean() < 0.05 * np.abs(expected).mean()
    assert (found.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.9


def test_an_untied_head(save_tiny: Callable[..., Path]) -> None:
    tokens = np.array(tokens_of(4, 30), np.int32)
    expected = oracle_logits(random_model("llama", tie_word_embeddings=False), tokens)
    found = score(load(save_tiny("llama", tie_word_embeddings=False), "fp32"), tokens, 30)
    assert np.abs(found - expected).max() < 2e-4


@pytest.fixture(scope="module")
def oracle(default_model: Path) -> Any:
    """The default model in transformers, float32."""
    config, weights = load_weights(default_model)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab,
            hidden_size=config.hidden,
            intermediate_size=config.intermediate,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            rope_theta=config.rope_theta,
            rms_norm_eps=config.norm_eps,
            max_position_embeddings=config.max_positions,
            tie_word_embeddings=True,
        )
    ).eval()
    tensors = {"model.embed_tokens.weight": weights.embed, "model.norm.weight": weights.final_norm}
    tensors["lm_head.weight"] = weights.embed
    blocks = {"attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
    blocks |= {name: f"self_attn.{name}_proj" for name in "qkvo"}
    blocks |= {name: f"mlp.{name}_proj" for name in ("gate", "up", "down")}
    for number, layer in enumerate(weights.layers):
        tensors |= {f"model.layers.{number}.{theirs}.weight": getattr(layer, ours) for ours, theirs in blocks.items()}
    model.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in tensors.items()})
    return model


@pytest.mark.model
@pytest.mark.timeout(600)
def test_float32_answers_are_those_of_transformers(default_model: Path, oracle: Any) -> None:
    """Greedy, eight questions packed: at every step the token that transformers would choose, to 0.001 in logits."""
    texts = prompts(default_model, 8)
    backend = load(default_model, "fp32")
    for prompt, whole in zip(texts, greedy(backend, texts, 24), strict=True):
        expected = oracle_logits(oracle, whole[:-1])[len(prompt) - 1 :]
        assert np.array_equal(expected.argmax(axis=1), whole[len(prompt) :])
        assert np.abs(score(backend, whole[:-1], 24) - expected).max() < 1e-3


@pytest.mark.model
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("precision", "least"), [("bf16", 0.97), ("int8", 0.94)])
def test_top_choices_of_lower_precisions(default_model: Path, precision: str, least: float) -> None:
    """Teacher-forced on the float32 answers. The long form, on the whole workload, is a benchmark."""
    texts = prompts(default_model, 8)
    full, short = load(default_model, "fp32"), load(default_model, precision)
    same = []
    for prompt, whole in zip(texts, greedy(full, texts, 32), strict=True):
        same.append(score(short, whole[:-1], 32).argmax(axis=1) == whole[len(prompt) :])
    assert np.concatenate(same).mean() >= least
