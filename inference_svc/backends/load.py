"""Picks and loads a backend by name. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from inference_svc.backends.port import Backend

BACKENDS = ("auto", "reference", "native")
"""Names that ``core.backend`` may have."""

PRECISIONS = ("fp32", "bf16", "fp16", "int8")
"""Names that ``core.precision`` may have. Each backend refuses those it lacks."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Wish:
    path: str | Path
    precision: str
    pages: int
    threads: int | None


def load_backend(
    model_path: str | Path,
    *,
    backend: str = "auto",
    precision: str = "fp32",
    device: str = "cpu",
    pages: int = 1024,
    threads: int | None = None,
    ranks: int = 1,
) -> Backend:
    """Loads a model into the backend of that name.

    Args:
        model_path: A GGUF file or a Hugging Face directory.
        backend: ``reference``, ``native``, or ``auto``: native on a CPU that
            it can be built for, else reference.
        precision: ``fp32``, ``bf16``, ``fp16`` or ``int8``.
        device: ``cpu``, or a torch device for the reference backend.
        pages: Pages of the KV store, 16 positions each.
        threads: Threads for arithmetic; None leaves it to the backend.
        ranks: Processes that share the model, each with a part of it: the reference backend only.

    Raises:
        ModelError: the model cannot be read or is refused.
        ValueError: a name is unknown, or this backend lacks the precision or the device.
        RuntimeError: ``native`` was asked for and cannot be had here; the text says why.
    """
    _check("core.backend", backend, BACKENDS)
    _check("core.precision", precision, PRECISIONS)
    if ranks > 1:
        _check("core.backend with core.tensor_parallel", backend, ("auto", "reference"))
        from inference_svc.backends.reference.parallel import ParallelBackend

        return ParallelBackend.load(model_path, ranks, precision=precision, device=device, pages=pages, threads=threads)
    wish = _Wish(model_path, precision, pages, threads)
    if backend == "native":
        _check("core.device for the native backend", device, ("cpu",))
        return _native(wish)
    if backend == "auto" and device == "cpu":
        return _native_or_reference(wish)
    return _reference(wish, device)


def _check(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{key}: {value!r} is not possible; allowed: {', '.join(allowed)}")


def _native_or_reference(wish: _Wish) -> Backend:
    from inference_svc.backends.native.errors import NativeUnavailable

    try:
        return _native(wish)
    except NativeUnavailable as reason:
        _LOG.warning("the reference backend, which is slower, takes the native one's place: %s", reason)
        return _reference(wish, "cpu")


def _native(wish: _Wish) -> Backend:
    from inference_svc.backends.native import NativeBackend

    return NativeBackend.load(wish.path, precision=wish.precision, pages=wish.pages, threads=wish.threads)


def _reference(wish: _Wish, device: str) -> Backend:
    from inference_svc.backends.reference import ReferenceBackend

    return ReferenceBackend.load(
        wish.path, precision=wish.precision, device=device, pages=wish.pages, threads=wish.threads
    )
