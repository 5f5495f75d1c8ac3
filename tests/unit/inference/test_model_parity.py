"""Families and GGUF types against transformers: float32 logits within 1e-3, and 32 equal greedy tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_lab import TYPES, greedy_by, write
from inference_models import SIZES, oracle_logits, random_model, scoring_pack, tokens_of
from native_support import greedy, load

from inference_svc.backends.reference import ReferenceBackend
from inference_svc.models import inspect

PROMPT = np.array(tokens_of(5, 40), np.int32)
STEPS = 32


def _loaded(name: str, path: Path) -> Any:
    return load(path, "fp32", pages=16) if name == "native" else ReferenceBackend.load(path, pages=16)


def _same(model: Any, backend: Any) -> float:
    """Checks both claims; the largest difference of a logit."""
    off = float(np.abs(backend.forward(scoring_pack(PROMPT)) - oracle_logits(model, PROMPT)).max())
    assert off <= 1e-3
    (whole,) = greedy(backend, (PROMPT,), STEPS)
    assert whole[len(PROMPT) :].tolist() == greedy_by(model, PROMPT, STEPS)
    return off


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("family", SIZES)
def test_families(save_tiny: Callable[..., Path], family: str, backend: str) -> None:
    _same(random_model(family), _loaded(backend, save_tiny(family)))


@pytest.mark.parametrize("kind", TYPES)
def test_gguf_types(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.gguf"
    model = write(path, kind)
    assert inspect(path)[1][kind] >= 16
    _same(model, _loaded("native", path))
