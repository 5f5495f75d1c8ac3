"""Random models small enough for a test, built by transformers: the oracle of the loader tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.models.llama import LlamaConfig
from transformers.models.mistral import MistralConfig
from transformers.models.qwen2 import Qwen2Config
from transformers.models.qwen3 import Qwen3Config

from inference_svc.rows import Float32Array, Int32Array, Pack, Span, pages_for

CONFIGS = {"llama": LlamaConfig, "mistral": MistralConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}

SIZES: dict[str, dict[str, Any]] = {
    "llama": {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True},
    "mistral": {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "sliding_window": 256},
    "qwen2": {"num_attention_heads": 7, "num_key_value_heads": 7, "hidden_size": 112},
    "qwen3": {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32},
}
"""What makes each family different from the others: grouping, head width, tied head, window."""

_COMMON = {
    "vocab_size": 257,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def random_model(family: str, **changes: Any) -> Any:
    """A model of a family with random weights: biases and norms, too, are not at their neutral start."""
    torch.manual_seed(sum(map(ord, family)))
    config = CONFIGS[family](**{**_COMMON, **SIZES[family], **changes})
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.1 if parameter.dim() == 1 else 2.0 / parameter.shape[-1] ** 0.5
            parameter.copy_(torch.randn_like(parameter) * spread + (1.0 if "norm" in name else 0.0))
    return model


def oracle_logits(model: Any, tokens: Int32Array) -> Float32Array:
    """What transformers computes: float32 ``[tokens, vocab]``."""
    with torch.no_grad():
        logits: Float32Array = model(torch.from_numpy(tokens.astype(np.int64))[None]).logits[0].float().numpy()
    return logits


def tokens_of(seed: int, count: int, vocab: int = 257) -> tuple[int, ...]:
    """Random tokens."""
    return tuple(int(token) for token in np.random.default_rng(seed).integers(0, vocab, count))


def scoring_pack(tokens: Int32Array) -> Pack:
    """One channel, all tokens at once, logits for every row."""
    table = np.arange(pages_for(len(tokens)), dtype=np.int32)
    return Pack.of([Span(0, tokens, 0, table, wanted=len(tokens))])
