"""Loads what a worker needs: model, tokenizer, digest."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

from inference_svc.assembly import kv_pages
from inference_svc.backends.load import load_backend
from inference_svc.backends.port import Backend
from inference_svc.models import digest, inspect
from kev.config.settings import Settings
from kev.tokens.model_files import resolve_model
from kev.tokens.tokenizer import Tokenizer


class ModelUnusable(Exception):
    """The model cannot be served here; the text is a line for the operator."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to serve. ``path`` is where it was found, ``digest`` tells it from others."""

    backend: Backend
    tokenizer: Tokenizer
    path: str
    digest: str


def load_model(settings: Settings) -> LoadedModel:
    """Loads the model of section ``core``. Takes seconds; not for the event loop.

    Raises:
        ModelUnusable: there is no model, it is refused, or it or the backend lacks what was asked for.
    """
    core = settings.core
    try:
        path = resolve_model(core.model_path)
        inspect(path)[0].check_context(core.max_context)  # before a KV store of that size is made
        tokenizer = Tokenizer.load(path)
        backend = load_backend(
            path,
            backend=core.backend,
            precision=core.precision.value,
            device=core.device,
            pages=kv_pages(settings),
            threads=core.threads or None,
            ranks=core.tensor_parallel,
        )
        return LoadedModel(backend, tokenizer, str(path), digest(path))
    except (OSError, ValueError, ImportError, RuntimeError, MemoryError) as error:
        raise ModelUnusable(" ".join(str(error).split()) or type(error).__name__) from error


def worker_id_of(settings: Settings) -> str:
    """``inference.worker_id``, or the host's name in a worker id's letters: stable over restarts."""
    host = re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().lower()).strip("-")[:63]
    return settings.inference.worker_id or host or "worker"
