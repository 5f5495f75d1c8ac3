"""Reads a model, whatever its format."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from inference_svc.models.codes import KEPT, ModelCodes
from inference_svc.models.config import ModelConfig
from inference_svc.models.errors import ModelError
from inference_svc.models.gguf import gguf_codes, has_gguf_codes, inspect_gguf, load_gguf
from inference_svc.models.safetensors_dir import inspect_directory, load_directory
from inference_svc.models.weights import Weights


def load_weights(path: str | Path) -> tuple[ModelConfig, Weights]:
    """Reads a GGUF file or a Hugging Face directory with safetensors.

    Tensors come back as float32, whatever they were stored as. Nothing is ever unpickled.

    Raises:
        ModelError: there is no model at ``path``, its format is not one of
            the two, or its architecture is refused; the message says which.
    """
    found = _found(path)
    return load_directory(found) if found.is_dir() else load_gguf(found)


def load_codes(path: str | Path, precision: str) -> ModelCodes | None:
    """The same numbers as ``load_weights`` gives, the matrices as their file stores them.

    Args:
        path: As for ``load_weights``.
        precision: ``fp32`` takes every type that has codes, for all matrices; ``int8`` takes
            codes of four bits, for those of the blocks. Others take none.

    Returns:
        None where a matrix is stored as plain numbers, or in a type that the precision does not take.

    Raises:
        ModelError: as ``load_weights`` would.
    """
    found = _found(path)
    return None if found.is_dir() or precision not in KEPT else gguf_codes(found, precision)


def has_codes(path: str | Path, precision: str) -> bool:
    """Whether ``load_codes`` finds any; no tensor is read.

    Raises:
        ModelError: as ``load_weights`` would.
    """
    found = _found(path)
    return not found.is_dir() and precision in KEPT and has_gguf_codes(found, precision)


def inspect(path: str | Path) -> tuple[ModelConfig, Counter[str]]:
    """Checks all that ``load_weights`` checks, without reading the tensors: milliseconds for any model.

    Returns:
        The config, and how many tensors are stored in each type.

    Raises:
        ModelError: as ``load_weights`` would.
    """
    found = _found(path)
    return inspect_directory(found) if found.is_dir() else inspect_gguf(found)


def _found(path: str | Path) -> Path:
    found = Path(path).expanduser()
    if found.is_dir() or (found.is_file() and found.suffix == ".gguf"):
        return found
    if not found.is_file():
        raise ModelError(f"core.model_path: no file or directory {str(path)!r}")
    raise ModelError(
        f"core.model_path: {found.name!r} is neither a .gguf file nor a directory with config.json and *.safetensors"
    )
