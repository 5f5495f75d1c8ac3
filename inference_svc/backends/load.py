"""Picks and loads a backend by name. Nothing heavy is imported before it is needed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inference_svc.backends.port import Backend

BACKENDS = ("auto", "reference", "native")
"""Names that ``core.backend`` may have."""

PRECISIONS = ("fp32", "bf16", "fp16", "int8")
"""Names that ``core.precision`` may have. Each backend refuses those it lacks."""

_NATIVE = "inference_svc.backends.native"


def load_backend(
    model_path: str | Path,
    *,
    backend: str = "auto",
    precision: str = "fp32",
    device: str = "cpu",
    pages: int = 1024,
    threads: int | None = None,
) -> Backend:
    """Loads a model into the backend of that name.

    Args:
        model_path: A GGUF file or a Hugging Face directory.
        backend: ``reference``, ``native``, or ``auto``: native on a CPU where
            it can be built and has the precision, else reference.
        precision: ``fp32``, ``bf16``, ``fp16`` or ``int8``.
        device: ``cpu``, or a torch device for the reference backend.
        pages: Pages of the KV store, 16 positions each.
        threads: Threads for arithmetic; None leaves it to the backend.

    Raises:
        ModelError: the model cannot be read or is refused.
        ValueError: a name is unknown, or this backend lacks the precision or the device.
        ImportError: ``native`` was asked for and cannot be built here.
    """
    _check("core.backend", backend, BACKENDS)
    _check("core.precision", precision, PRECISIONS)
    if backend == "native":
        return _native(model_path, precision, device, pages, threads)
    if backend == "auto" and device == "cpu":
        try:
            return _native(model_path, precision, device, pages, threads)
        except ImportError:
            pass
    return _reference(model_path, precision, device, pages, threads)


def _check(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{key}: {value!r} is unknown; allowed: {', '.join(allowed)}")


def _native(path: str | Path, precision: str, device: str, pages: int, threads: int | None) -> Backend:
    if device != "cpu":
        raise ValueError(f"core.device: the native backend runs on cpu only, got {device!r}")
    if find_spec(_NATIVE) is None:
        raise ImportError("the native backend is not part of this installation")
    module: Any = import_module(_NATIVE)
    if not hasattr(module, "NativeBackend"):
        raise ImportError("the native backend is not part of this installation")
    loaded: Backend = module.NativeBackend.load(path, precision=precision, pages=pages, threads=threads)
    return loaded


def _reference(path: str | Path, precision: str, device: str, pages: int, threads: int | None) -> Backend:
    from inference_svc.backends.reference import ReferenceBackend

    return ReferenceBackend.load(path, precision=precision, device=device, pages=pages, threads=threads)
