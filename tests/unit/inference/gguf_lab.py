"""Tiny GGUF files: of given weights, and in every type that people use with the same weights in transformers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from inference_models import random_model

from inference_svc.models import ModelConfig
from inference_svc.models.gguf import _LAYER
from inference_svc.models.hf_config import read_config
from inference_svc.rows import Float32Array, Int32Array

Stored = tuple[str, Any, gguf.GGMLQuantizationType | None]
"""A tensor's name in the file, its values or its bytes, and of which type these are."""

ARCHITECTURE = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""What files call the families."""

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


def write(path: Path, type_name: str, *, tied: bool = False, other: Mapping[str, str] | None = None) -> Any:
    """Writes a file whose matrices are all of one type.

    Args:
        tied: The embedding is the head, and there is no matrix of that.
        other: Types of single matrices, by name.

    Returns:
        The transformers model with the weights that the gguf library reads in it.
    """
    model = random_model("llama", **(SIZE | {"tie_word_embeddings": tied}))
    model.config.save_pretrained(path.parent)
    config, random = read_config(path.parent), np.random.default_rng(len(type_name) + sum(map(ord, type_name)))
    state = model.state_dict()

    def stored(stored_as: str, name: str, heads: int = 0) -> Stored:
        values = state[name]
        if values.dim() == 1:
            return stored_as, values.numpy(), None
        kind = gguf.GGMLQuantizationType[(other or {}).get(stored_as, type_name)]
        blocks = random_blocks(*values.shape, kind, random)
        read = np.array(gguf.dequantize(blocks, kind), dtype=np.float32).reshape(values.shape)
        values.copy_(torch.from_numpy(_halves_apart(read, heads) if heads else read))
        return stored_as, blocks, kind

    def tensors() -> Iterator[Stored]:
        yield stored("token_embd.weight", "model.embed_tokens.weight")
        yield stored("output_norm.weight", "model.norm.weight")
        if not tied:
            yield stored("output.weight", "lm_head.weight")
        heads = {"q": config.heads, "k": config.kv_heads}
        for layer in range(config.layers):
            for field, name in _HF.items():
                yield stored(f"blk.{layer}.{_LAYER[field]}", f"model.layers.{layer}.{name}.weight", heads.get(field, 0))

    write_file(path, config, tensors())
    return model


def write_file(path: Path, config: ModelConfig, tensors: Iterable[Stored], **extra: Any) -> None:
    """Writes a decoder.

    Args:
        extra: More keys of the metadata, with ``__`` for a dot; ``architecture`` in place of the family's.
    """
    writer = gguf.GGUFWriter(path, extra.pop("architecture", ARCHITECTURE[config.family]))
    writer.add_block_count(config.layers)
    writer.add_context_length(config.max_positions)
    writer.add_embedding_length(config.hidden)
    writer.add_feed_forward_length(config.intermediate)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_token_list([f"t{number}" for number in range(config.vocab)])
    for key, value in extra.items():
        add = {int: writer.add_uint32, list: writer.add_array}.get(type(value), writer.add_string)
        add(key.replace("__", "."), value)
    for name, values, kind in tensors:
        writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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
