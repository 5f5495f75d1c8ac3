"""Reads a decoder from a Hugging Face directory: ``config.json`` and ``*.safetensors``.

Pickled checkpoints are never opened: unpickling runs code that the file brings.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from inference_svc.models.config import ModelConfig
from inference_svc.models.errors import ModelError
from inference_svc.models.hf_config import read_config
from inference_svc.models.refuse import refuse_left_over
from inference_svc.models.rope import inverse_frequencies
from inference_svc.models.safetensors_file import SafetensorsFile
from inference_svc.models.weights import LayerWeights, Weights, check_shape, layer_shapes, top_shapes
from inference_svc.rows import Float32Array

_TOP = {"embed": "model.embed_tokens.weight", "final_norm": "model.norm.weight", "head": "lm_head.weight"}
_LAYER = {
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
}
_INDEX = "model.safetensors.index.json"


def load_directory(folder: Path) -> tuple[ModelConfig, Weights]:
    """Reads one directory, with one or several safetensors files.

    Raises:
        ModelError: only pickled weights are there, a file is missing or
            damaged, the model is refused, or a tensor is missing, misshapen
            or one too many.
    """
    config = read_config(folder)
    return config, _read(_Store(_files(folder)), config)


def inspect_directory(folder: Path) -> tuple[ModelConfig, Counter[str]]:
    """Checks all that ``load_directory`` checks, without reading the tensors.

    Returns:
        The config, and how many tensors are stored in each type.

    Raises:
        ModelError: as ``load_directory`` would.
    """
    config = read_config(folder)
    store = _Store(_files(folder))
    shapes = layer_shapes(config).items()
    names = {_TOP[field]: shape for field, shape in top_shapes(config).items()}
    names |= {f"model.layers.{i}.{_LAYER[field]}": shape for i in range(config.layers) for field, shape in shapes}
    for name, shape in names.items():
        store.check(name, shape)
    _refuse_unused(store, config)
    return config, Counter(store.kinds())


def _files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.is_file():
        return _indexed(folder, index)
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return files
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        raise ModelError(
            f"core.model_path: {folder.name!r} has pickled weights only, which are never opened because they can run "
            "code; allowed: *.safetensors"
        )
    raise ModelError(f"core.model_path: {folder.name!r} has no *.safetensors")


def _indexed(folder: Path, index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{_INDEX} is malformed: it needs a weight_map") from error
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelError(f"{_INDEX}: {name!r} is not a safetensors file of this directory")
        if not (folder / name).is_file():
            raise ModelError(f"core.model_path: {name} is missing; {_INDEX} names it")
    return [folder / name for name in names]


class _Store:
    """All tensors of several files under one roof; remembers which were not asked for."""

    def __init__(self, files: list[Path]) -> None:
        self._where: dict[str, SafetensorsFile] = {}
        for file in map(SafetensorsFile, files):
            self._where |= dict.fromkeys(file.names(), file)
        self.unused = set(self._where)

    def tensor(self, name: str, shape: tuple[int, ...]) -> Float32Array:
        """One tensor as float32."""
        self._taken(name, shape)
        return self._where[name].tensor(name)

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """What ``tensor`` would find; nothing is read."""
        self._taken(name, shape)
        self._where[name].check(name)

    def kinds(self) -> list[str]:
        """How each tensor is stored."""
        return [file.kind(name) for name, file in self._where.items()]

    def _taken(self, name: str, shape: tuple[int, ...]) -> None:
        if name not in self._where:
            raise ModelError(f"tensor {name} is missing")
        self.unused.discard(name)
        check_shape(name, self._where[name].shape(name), shape)


def _read(store: _Store, config: ModelConfig) -> Weights:
    top = {field: store.tensor(_TOP[field], shape) for field, shape in top_shapes(config).items()}
    shapes = layer_shapes(config)
    layers = tuple(
        LayerWeights(
            **{field: store.tensor(f"model.layers.{i}.{_LAYER[field]}", shape) for field, shape in shapes.items()}
        )
        for i in range(config.layers)
    )
    _refuse_unused(store, config)
    return Weights(
        embed=top["embed"],
        layers=layers,
        final_norm=top["final_norm"],
        head=top.get("head"),
        inv_freq=inverse_frequencies(config),
    )


def _refuse_unused(store: _Store, config: ModelConfig) -> None:
    ignored = {_TOP["head"]} if config.tied else set()
    refuse_left_over(name for name in store.unused - ignored if not name.endswith("rotary_emb.inv_freq"))
