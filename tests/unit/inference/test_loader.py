"""A checkpoint read by Kev gives the logits that transformers gives, or is refused with the reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inference_models import SIZES, oracle_logits, random_model, scoring_pack, tokens_of

from inference_svc.backends.reference import ReferenceBackend
from inference_svc.models import ModelError, load_weights

TOKENS = np.array(tokens_of(1, 70), dtype=np.int32)
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}


def _gap(folder: Path, model: Any) -> float:
    backend = ReferenceBackend.load(folder, pages=8)
    return float(np.abs(backend.forward(scoring_pack(TOKENS)) - oracle_logits(model, TOKENS)).max())


@pytest.mark.parametrize("family", SIZES)
def test_every_family_gives_the_logits_of_transformers(save_tiny: Any, family: str) -> None:
    assert _gap(save_tiny(family), random_model(family)) < 1e-4


@pytest.mark.parametrize("rope", [LLAMA3, LINEAR], ids=["llama3", "linear"])
def test_stretched_rotary_frequencies(save_tiny: Any, rope: dict[str, Any]) -> None:
    model = random_model("llama", rope_parameters=rope)
    assert _gap(save_tiny("llama", rope_parameters=rope), model) < 1e-4
    assert _gap(save_tiny("llama", rope_parameters=rope), random_model("llama")) > 1e-2


def test_older_files_keep_rope_beside_theta(save_tiny: Any, tmp_path: Path) -> None:
    folder = _changed(save_tiny("llama", rope_parameters=LINEAR), tmp_path, drop=["rope_parameters"])
    _edit(folder, rope_theta=10000.0, rope_scaling={"type": "linear", "factor": 4.0})
    assert _gap(folder, random_model("llama", rope_parameters=LINEAR)) < 1e-4


def test_several_files_with_an_index(save_tiny: Any) -> None:
    folder = save_tiny("qwen2", shard="200KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert _gap(folder, random_model("qwen2")) < 1e-4


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_files_are_read_exactly(save_tiny: Any, dtype: str) -> None:
    model = random_model("qwen3")
    for parameter in model.parameters():
        parameter.data = parameter.data.to(getattr(torch, dtype)).float()
    assert _gap(save_tiny("qwen3", dtype=dtype), model) < 1e-4


def test_the_config_says_what_the_model_is(save_tiny: Any) -> None:
    config, weights = load_weights(save_tiny("mistral"))
    assert (config.family, config.heads, config.kv_heads, config.head_dim) == ("mistral", 4, 1, 32)
    assert (config.bos_id, config.eos_ids) == (1, (2,))
    assert weights.head is not None
    assert config.max_context == 256, "a sliding window bounds the context"
    tied, weights = load_weights(save_tiny("llama"))
    assert tied.tied
    assert weights.head is None
    assert tied.max_context == 512


def _changed(source: Path, target: Path, drop: Sequence[str] = ()) -> Path:
    folder = target / "model"
    shutil.copytree(source, folder)
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({key: raw[key] for key in raw if key not in drop}))
    return folder


def _edit(folder: Path, **values: Any) -> None:
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | values))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"model_type": "mamba2"}, "recurrent"),
        ({"model_type": "qwen3_next"}, "recurrent"),
        ({"model_type": "rwkv"}, "recurrent"),
        ({"model_type": "bert"}, "encoder"),
        ({"model_type": "qwen2_vl"}, "images"),
        ({"model_type": "mixtral"}, "mixture of experts"),
        ({"model_type": "qwen3_moe"}, "mixture of experts"),
        ({"model_type": "gemma2"}, "layout"),
        ({"model_type": "unheard_of"}, "supported: llama, mistral, qwen2, qwen3"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "ForCausalLM"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, "attention_bias"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "low_freq_factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"num_key_value_heads": 4}, "evenly"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"vocab_size": 300}, "shape"),
        ({"num_hidden_layers": 3}, "missing"),
        ({"num_hidden_layers": 1}, "does not use"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_reason(
    save_tiny: Any, tmp_path: Path, values: dict[str, Any], reason: str
) -> None:
    folder = _changed(save_tiny("llama"), tmp_path)
    _edit(folder, **values)
    with pytest.raises(ModelError, match=reason) as caught:
        load_weights(folder)
    assert "\n" not in str(caught.value)


def test_pickled_weights_are_never_opened(save_tiny: Any, tmp_path: Path) -> None:
    folder = _changed(save_tiny("llama"), tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="never opened"):
        load_weights(folder)


def test_an_index_cannot_lead_out_of_its_directory(save_tiny: Any, tmp_path: Path) -> None:
    folder = _changed(save_tiny("llama"), tmp_path)
    index = folder / "model.safetensors.index.json"
    for name, reason in (("../other.safetensors", "not a safetensors file"), ("gone.safetensors", "missing")):
        index.write_text(json.dumps({"weight_map": {"model.norm.weight": name}}))
        with pytest.raises(ModelError, match=reason):
            load_weights(folder)


@pytest.mark.parametrize("keep", [0, 4, 5000, -1])
def test_a_cut_off_file_is_a_clear_error(save_tiny: Any, tmp_path: Path, keep: int) -> None:
    folder = _changed(save_tiny("llama"), tmp_path)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ModelError, match="damaged"):
        load_weights(folder)


def test_a_path_without_a_model_says_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no file or directory"):
        load_weights(tmp_path / "nothing")
    with pytest.raises(ModelError, match=r"config\.json"):
        load_weights(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"\.gguf"):
        load_weights(tmp_path / "model.onnx")
