"""``kev models``: what it lists, what it says of a path, and how a download fails. No network is touched."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kev.app.cli.main import app
from kev.app.models import found_models


class RepositoryNotFoundError(Exception):
    """Named as the hub's."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEV_MODELS_DIR", str(tmp_path / "models"))
    return tmp_path / "models"


def models(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["models", *map(str, arguments)])


def hub(monkeypatch: pytest.MonkeyPatch, download: Any) -> list[dict[str, Any]]:
    """Puts a hub of our own in the library's place; what it was asked for."""
    asked: list[dict[str, Any]] = []

    def snapshot_download(repository: str, **arguments: Any) -> None:
        asked.append({"repository": repository, **arguments})
        download(Path(arguments["local_dir"]))

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))
    return asked


def raising(error: Exception) -> Any:
    def download(folder: Path) -> None:
        raise error

    return download


@pytest.mark.model
def test_the_default_model_is_listed_and_served() -> None:
    listed = json.loads(models("list", "--json").output)
    assert listed[0]["family"] == "llama"
    done = models("check", "default")
    assert done.exit_code == 0
    for text in ("134,515,008", "210 x Q4_1", "49,152 tokens", "its own"):
        assert text in done.output


def test_what_cannot_be_served_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "mamba2"}')
    (folder / "tokenizer.json").write_text("{}")
    done = models("check", folder)
    assert done.exit_code == 1
    assert "recurrent" in done.output
    assert json.loads(models("check", tmp_path / "none", "--json").output)["served"] is False


def test_a_download_is_checked_and_listed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"model_type": "bert"}')
        (folder / "tokenizer.json").write_text("{}")

    asked = hub(monkeypatch, download)
    done = models("download", "owner/name", "--revision", "v1")
    assert done.exit_code == 1
    assert "encoder" in done.output
    assert (asked[0]["repository"], asked[0]["revision"]) == ("owner/name", "v1")
    assert not [pattern for pattern in asked[0]["allow_patterns"] if pattern.endswith(("bin", "pt"))]
    assert place / "owner" / "name" in found_models()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("Name or service not known"), "the hub cannot be reached (Name or service not known)"),
        (RepositoryNotFoundError("404"), "no such model"),
    ],
)
def test_a_failed_download_is_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception, text: str) -> None:
    hub(monkeypatch, raising(error))
    done = models("download", "owner/name")
    assert done.exit_code == 1
    assert text in done.output
    assert done.output.count("\n") == 1


@pytest.mark.parametrize("name", ["name", "a/b/c", "/b", "owner/name:weights.bin", "../..", "a/.."])
def test_bad_names_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    asked = hub(monkeypatch, raising(AssertionError()))
    assert models("download", name).exit_code == 2
    assert asked == []


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "kev-serving[hub]" in models("download", "owner/name").output
