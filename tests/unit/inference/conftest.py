"""Tiny checkpoints of every family, written by transformers, and the backends loaded from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from gguf_lab import write
from inference_models import SIZES, random_model

from inference_svc.backends.native import packed
from inference_svc.backends.native.variants import Variant
from inference_svc.backends.reference import ReferenceBackend

Save = Callable[..., Path]


@pytest.fixture(scope="session")
def save_tiny(tmp_path_factory: pytest.TempPathFactory) -> Save:
    """Writes a random checkpoint of a family as a Hugging Face directory; the same arguments give the same one."""
    known: dict[tuple[object, ...], Path] = {}

    def save(family: str, *, dtype: str = "float32", shard: str = "1GB", **changes: Any) -> Path:
        key = (family, dtype, shard, *sorted((name, str(value)) for name, value in changes.items()))
        if key not in known:
            known[key] = tmp_path_factory.mktemp(family)
            random_model(family, **changes).to(getattr(torch, dtype)).save_pretrained(known[key], max_shard_size=shard)
        return known[key]

    return save


@pytest.fixture(scope="session")
def tiny_dirs(save_tiny: Save) -> dict[str, Path]:
    """One directory per family."""
    return {family: save_tiny(family) for family in SIZES}


@pytest.fixture(scope="session")
def coded_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose matrices are whole numbers with scales and minima, which float32 keeps as they are."""
    path = tmp_path_factory.mktemp("coded") / "model.gguf"
    write(path, "Q4_1")
    return path


@pytest.fixture(scope="session")
def tiny_backend(tiny_dirs: dict[str, Path]) -> Callable[[str, str], ReferenceBackend]:
    """The reference backend of a family in a precision, loaded once."""
    known: dict[tuple[str, str], ReferenceBackend] = {}

    def load(family: str, precision: str) -> ReferenceBackend:
        key = (family, precision)
        if key not in known:
            known[key] = ReferenceBackend.load(tiny_dirs[family], precision=precision, pages=160)
        return known[key]

    return load


@pytest.fixture(scope="session", autouse=True)
def _quiet_and_single_threaded() -> None:
    """Tiny products gain nothing from threads, and lose much to waiting where tests share a machine."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


@pytest.fixture(scope="session", autouse=True)
def _the_users_cache_keeps_no_tiny_weights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Only kernels and the default model are worth it. A test that names a cache of its own gets that."""
    own, made_here, usual = tmp_path_factory.mktemp("weights"), tmp_path_factory.getbasetemp(), packed.place_of
    users = os.environ.get("KEV_CACHE_DIR")

    def place_of(model: str | Path, precision: str, variant: Variant) -> Path:
        place = usual(model, precision, variant)
        divert = Path(model).is_relative_to(made_here) and os.environ.get("KEV_CACHE_DIR") == users
        return own / place.name if divert else place

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "place_of", place_of)
        yield
