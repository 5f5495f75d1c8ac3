"""Tiny GGUF files in every type that people use, and the same weights in transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from inference_models import random_model

from inference_svc.models.gguf import _LAYER
from inference_svc.rows import Float32Array, Int32Array

TYPES = (
    "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
    "IQ4_NL", "IQ4_XS",
)  # fmt: skip

_SCALES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "IQ4_NL": (0,), "IQ4_XS": (0,),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
}  # fmt: skip
"""Where in a block its half-precision scales stand; all other bytes may be anything."""

SIZE = {
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "tie_word_embeddings": False, "num_hidden_layers": 2,
}  # fmt: skip
"""Rows of 256, the longest block."""

_HF = {
    "attn_norm": "input_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
    "o": "self_attn.o_proj", "mlp_norm": "post_attention_layernorm", "gate": "mlp.gate_proj", "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}  # fmt: skip


def random_blocks(rows: int, width: int, kind: gguf.GGMLQuantizationType, random: np.random.Generator) -> Any:
    """Bytes of a random matrix in a type, ``[rows, bytes per row]``: any bits, with scales that keep it in bounds.

    So also the types are covered that the library reads but does not write.
    """
    spread = 2.0 * width**-0.5
    if kind.name in ("F32", "F16", "BF16"):
        plain = (random.standard_normal((rows, width)) * spread).astype(np.float32)
        return np.ascontiguousarray(gguf.quantize(plain, kind)).view(np.uint8)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    stored = random.integers(0, 256, (rows * width // block, size), dtype=np.uint8)
    places = _SCALES[kind.name]

    def scaled(*scales: float) -> Any:
        for place, scale in zip(places, scales, strict=True):
            stored[:, place : place + 2] = np.array([scale], np.float16).view(np.uint8)
        return gguf.dequantize(stored.reshape(rows, -1), kind)

    scales = [1.0]
    if len(places) == 2:  # a scale and a minimum, so that the mean is 0
        scales.append(-float(scaled(1.0, 0.0).mean()) / float(scaled(0.0, 1.0).mean()))
    factor = spread / float(scaled(*scales).std())
    scaled(*(scale * factor for scale in scales))
    return stored.reshape(rows, -1)


def write(path: Path, type_name: str) -> Any:
    """Writes a file whose matrices are all of one type.

    Returns:
        The transformers model with the weights that the gguf library reads in it.
    """
    model, kind = random_model("llama", **SIZE), gguf.GGMLQuantizationType[type_name]
    config, random = model.config, np.random.default_rng(len(type_name) + sum(map(ord, type_name)))
    writer = gguf.GGUFWriter(path, "llama")
    _metadata(writer, config)
    state = model.state_dict()

    def add(stored_as: str, name: str, heads: int = 0) -> None:
        values = state[name]
        if values.dim() == 1:
            writer.add_tensor(stored_as, values.numpy())
            return
        stored = random_blocks(*values.shape, kind, random)
        writer.add_tensor(stored_as, stored, raw_dtype=kind)
        read = np.array(gguf.dequantize(stored, kind), dtype=np.float32).reshape(values.shape)
        values.copy_(torch.from_numpy(_halves_apart(read, heads) if heads else read))

    add("token_embd.weight", "model.embed_tokens.weight")
    add("output_norm.weight", "model.norm.weight")
    add("output.weight", "lm_head.weight")
    heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}
    for layer in range(config.num_hidden_layers):
        for field, name in _HF.items():
            add(f"blk.{layer}.{_LAYER[field]}", f"model.layers.{layer}.{name}.weight", heads.get(field, 0))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _metadata(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_eos_token_id(2)


def _halves_apart(values: Float32Array, heads: int) -> Float32Array:
    """The order of transformers, from the interleaved one of GGUF: even rows of a head, then odd ones."""
    by_head = values.reshape(heads, -1, values.shape[1])
    return np.concatenate([by_head[:, 0::2], by_head[:, 1::2]], axis=1).reshape(values.shape)


def greedy_by(model: Any, prompt: Int32Array, steps: int) -> list[int]:
    """What transformers answers, one token after the other, past any end token."""
    tokens = prompt.tolist()
    with torch.no_grad():
        for _ in range(steps):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]
