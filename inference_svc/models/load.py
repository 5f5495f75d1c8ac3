"""Reads a model, whatever its format."""

from __future__ import annotations

from pathlib import Path

from inference_svc.models.config import ModelConfig
from inference_svc.models.errors import ModelError
from inference_svc.models.gguf import load_gguf
from inference_svc.models.safetensors_dir import load_directory
from inference_svc.models.weights import Weights


def load_weights(path: str | Path) -> tuple[ModelConfig, Weights]:
    """Reads a GGUF file or a Hugging Face directory with safetensors.

    Tensors come back as float32, whatever they were stored as. Nothing is ever unpickled.

    Raises:
        ModelError: there is no model at ``path``, its format is not one of
            the two, or its architecture is refused; the message says which.
    """
    found = Path(path).expanduser()
    if found.is_dir():
        return load_directory(found)
    if not found.is_file():
        raise ModelError(f"core.model_path: no file or directory {str(path)!r}")
    if found.suffix == ".gguf":
        return load_gguf(found)
    raise ModelError(
        f"core.model_path: {found.name!r} is neither a .gguf file nor a directory with config.json and *.safetensors"
    )
