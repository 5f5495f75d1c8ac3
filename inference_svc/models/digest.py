"""A model's digest: do two workers hold the same model?

Hashing every byte of a large model takes too long at start. The digest covers
each file's size, its head (formats keep their metadata and tensor tables
there), its tail, and blocks spread over the rest.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from inference_svc.models.errors import ModelError

if TYPE_CHECKING:
    from hashlib import _Hash

_HEAD = 4 << 20
_TAIL = 1 << 20
_SAMPLE = 1 << 16
_SAMPLES = 64
_SMALL_FILES = ("config.json", "generation_config.json", "model.safetensors.index.json")


def digest(path: str | Path) -> str:
    """Digest of a GGUF file or a Hugging Face directory: 64 hex digits.

    It does not depend on where the model lies nor on file times. It tells
    models apart; it is no proof against somebody who forges one.

    Raises:
        ModelError: there is no model file at ``path``.
    """
    files = _files(Path(path))
    state = hashlib.sha256(b"kev-model-1")
    for file in files:
        name = file.name if len(files) > 1 else file.suffix
        state.update(f"\0{name}\0{file.stat().st_size}\0".encode())
        _add_file(state, file)
    return state.hexdigest()


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else []
    if not files:
        raise ModelError(f"core.model_path: no model at {str(path)!r}")
    return [*(path / name for name in _SMALL_FILES if (path / name).is_file()), *files]


def _add_file(state: _Hash, file: Path) -> None:
    size = file.stat().st_size
    with file.open("rb") as stream:
        state.update(stream.read(_HEAD))
        step = max((size - _HEAD - _TAIL) // _SAMPLES, _SAMPLE)
        for offset in range(_HEAD, size - _TAIL, step):
            stream.seek(offset)
            state.update(stream.read(_SAMPLE))
        if size > _HEAD:
            stream.seek(max(size - _TAIL, _HEAD))
            state.update(stream.read(_TAIL))
