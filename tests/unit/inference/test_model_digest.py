"""A model's digest tells models apart and does not depend on where they lie."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from inference_svc.models import ModelError, digest

MIB = 1 << 20


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + os.urandom(12 * MIB))
    return path


def test_a_copy_under_another_name_has_the_same_digest(large: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    shutil.copy(large, copy)
    assert digest(large) == digest(str(copy))
    assert len(digest(large)) == 64


@pytest.mark.parametrize("place", [0, 3 * MIB, 6 * MIB, 12 * MIB])
def test_a_changed_block_changes_the_digest(large: Path, place: int) -> None:
    before = digest(large)
    with large.open("r+b") as file:
        file.seek(place)
        file.write(bytes(2 * MIB) if place else b"GGUX")
    assert digest(large) != before


def test_length_counts(large: Path) -> None:
    before = digest(large)
    with large.open("ab") as file:
        file.write(b"\0")
    assert digest(large) != before


def test_a_directory_is_its_config_and_its_weights(save_tiny: Any, tmp_path: Path) -> None:
    source = save_tiny("llama")
    copy = tmp_path / "elsewhere"
    shutil.copytree(source, copy)
    (copy / "README.md").write_text("not part of the model")
    assert digest(copy) == digest(source)
    assert digest(copy) != digest(save_tiny("qwen2"))
    (copy / "config.json").write_text((copy / "config.json").read_text() + " ")
    assert digest(copy) != digest(source)


def test_no_model_no_digest(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ModelError, match="no model"):
            digest(path)
