"""Reads ``config.json`` of a Hugging Face directory, and refuses what this decoder is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from inference_svc.models.config import FAMILIES, ModelConfig, RopeScaling
from inference_svc.models.errors import ModelError
from inference_svc.models.refuse import refuse_architecture

_DEFAULT_THETA = 10000.0


def read_config(folder: Path) -> ModelConfig:
    """The config of the model in ``folder``.

    Raises:
        ModelError: the file is missing or malformed, a key is missing, or
            the model is one that is refused.
    """
    raw = _read_json(folder / "config.json")
    family = str(raw.get("model_type", ""))
    _refuse(raw, family)
    heads, hidden = _int(raw, "num_attention_heads"), _int(raw, "hidden_size")
    theta, scaling = _rope(raw)
    return ModelConfig(
        family=family,
        layers=_int(raw, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=int(raw.get("head_dim") or hidden // heads),
        intermediate=_int(raw, "intermediate_size"),
        vocab=_int(raw, "vocab_size"),
        rope_theta=theta,
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        tied=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        max_positions=_int(raw, "max_position_embeddings"),
        window=_window(raw, family),
        rope_scaling=scaling,
        bos_id=raw.get("bos_token_id"),
        eos_ids=_eos(folder, raw),
    )


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ModelError(f"core.model_path: {path.parent.name!r} has no {path.name}")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path.name} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path.name} must be a JSON object")
    return value


def _int(raw: dict[str, Any], key: str) -> int:
    value = raw.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ModelError(f"config.json: {key} must be an integer, got {value!r}")
    return value


def _refuse(raw: dict[str, Any], family: str) -> None:
    names = [str(name) for name in raw.get("architectures") or []]
    if family not in FAMILIES:
        raise refuse_architecture(family or ", ".join(names))
    wrong = [name for name in names if not name.endswith("ForCausalLM")]
    if wrong:
        raise ModelError(f"model {wrong[0]!r} is refused: it does not generate text; allowed: ...ForCausalLM")
    if raw.get("quantization_config"):
        method = raw["quantization_config"].get("quant_method", "unknown")
        raise ModelError(f"checkpoint quantised with {method!r} is not supported; allowed: float32, float16, bfloat16")
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelError(f"config.json: hidden_act {raw['hidden_act']!r} is not supported; allowed: silu")
    for key in ("attention_bias", "mlp_bias"):
        if raw.get(key):
            raise ModelError(f"config.json: {key} is not supported for family {family!r}")
    if float(_rope_values(raw).get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0) != 1.0:
        raise ModelError("config.json: partial_rotary_factor is not supported; allowed: 1")


def _rope_values(raw: dict[str, Any]) -> dict[str, Any]:
    """Newer files have ``rope_parameters``, older ones ``rope_scaling`` beside ``rope_theta``."""
    values = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(values, dict):
        raise ModelError("config.json: rope_parameters must be an object")
    return values


def _rope(raw: dict[str, Any]) -> tuple[float, RopeScaling | None]:
    values = _rope_values(raw)
    theta = float(values.get("rope_theta") or raw.get("rope_theta") or _DEFAULT_THETA)
    kind = values.get("rope_type") or values.get("type") or "default"
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, RopeScaling("linear", _number(values, "factor"))
    if kind == "llama3":
        return theta, RopeScaling(
            "llama3",
            _number(values, "factor"),
            _number(values, "low_freq_factor"),
            _number(values, "high_freq_factor"),
            int(_number(values, "original_max_position_embeddings")),
        )
    raise ModelError(f"config.json: rope type {kind!r} is not supported; allowed: default, linear, llama3")


def _number(values: dict[str, Any], key: str) -> float:
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ModelError(f"config.json: rope {key} must be a positive number, got {value!r}")
    return float(value)


def _window(raw: dict[str, Any], family: str) -> int | None:
    """Mistral slides whenever a window is given; Qwen only if it also says so."""
    window = raw.get("sliding_window")
    slides = family == "mistral" or (family.startswith("qwen") and raw.get("use_sliding_window"))
    if not slides and "sliding_attention" not in (raw.get("layer_types") or []):
        return None
    return int(window) if window else None


def _eos(folder: Path, raw: dict[str, Any]) -> tuple[int, ...]:
    """End tokens of the config, then those that only ``generation_config.json`` knows."""
    found: list[int] = []
    generation = folder / "generation_config.json"
    for source in (raw, _read_json(generation) if generation.is_file() else {}):
        value = source.get("eos_token_id")
        found += value if isinstance(value, list) else [value] if value is not None else []
    return tuple(dict.fromkeys(int(token) for token in found))
