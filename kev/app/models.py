"""Models of this machine: where they lie, and how one is fetched."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kev.tokens.model_files import ModelNotFound, default_model_path

PATTERNS = ("*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "tokenizer.model", "*.txt")
"""Of a repository; pickled weights are not among them."""


_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*")


class CannotDownload(Exception):
    """A model cannot be had; the text says why. ``bad_use``: the name is wrong, not the network."""

    def __init__(self, text: str, bad_use: bool = False) -> None:
        super().__init__(text)
        self.bad_use = bad_use


def models_dir() -> Path:
    """Where downloads go: ``KEV_MODELS_DIR``, else ``models`` in Kev's cache directory."""
    if named := os.environ.get("KEV_MODELS_DIR"):
        return Path(os.path.expanduser(named))  # as it is, where the user of a ~name does not exist
    from inference_svc.backends.native.cache import cache_dir

    return cache_dir() / "models"


def found_models() -> list[Path]:
    """The default model, if it is installed, then what was downloaded: GGUF files and directories with a config."""
    try:
        found = [default_model_path()]
    except ModelNotFound:
        found = []
    files = sorted(models_dir().glob("*/*/*.gguf"))
    folders = sorted(config.parent for config in models_dir().glob("*/*/config.json"))
    return found + files + folders


def fetched(name: str, revision: str | None = None) -> Path:
    """Downloads ``owner/name`` (safetensors) or ``owner/name:file.gguf`` through huggingface_hub.

    Returns:
        The directory, or the file.

    Raises:
        CannotDownload: there is no network, no such model, or the library is not installed.
    """
    repository, _, file = name.partition(":")
    if not _NAME.fullmatch(repository) or (file and (not file.endswith(".gguf") or ".." in file)):
        raise CannotDownload(f"{name!r} is not a model; allowed: OWNER/NAME, or OWNER/NAME:FILE.gguf", bad_use=True)
    try:
        import huggingface_hub
    except ImportError:
        raise CannotDownload("downloading needs huggingface_hub: pip install 'kev-serving[hub]'") from None
    target = models_dir() / repository
    patterns = [file] if file else list(PATTERNS)
    try:
        huggingface_hub.snapshot_download(repository, revision=revision, local_dir=target, allow_patterns=patterns)
    except Exception as error:
        raise CannotDownload(_why(repository, error)) from error
    place = target / file if file else target
    if not place.exists():
        raise CannotDownload(f"{repository} has no {file}", bad_use=True)
    return place


def _why(repository: str, error: Exception) -> str:
    kind = type(error).__name__
    if kind == "GatedRepoError":
        return f"{repository} must be unlocked first: accept its licence on the hub and log in (hf auth login)"
    if kind == "RepositoryNotFoundError":
        return f"{repository}: the hub has no such model, or it is private"
    if kind == "RevisionNotFoundError":
        return f"{repository}: the hub has no such revision"
    while (cause := error.__cause__ or error.__context__) is not None and isinstance(cause, Exception):
        error = cause
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return f"{repository} cannot be downloaded: the hub cannot be reached ({reason})"
