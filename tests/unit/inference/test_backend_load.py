"""A backend is picked by name; what is not there is refused by name."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from inference_svc.backends import load
from inference_svc.backends.load import load_backend


class _Native:
    """Stands for the native backend; remembers how it was loaded."""

    name = "native"

    @classmethod
    def load(cls, path: str | Path, **settings: Any) -> _Native:
        if settings["precision"] == "fp16":
            raise ValueError("core.precision: not built")
        made = cls()
        made.__dict__.update(settings)
        return made


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("stand_in_native")
    module.NativeBackend = _Native  # type: ignore[attr-defined]
    module.__spec__ = load.find_spec("json")
    monkeypatch.setitem(sys.modules, "stand_in_native", module)
    monkeypatch.setattr(load, "_NATIVE", "stand_in_native")


@pytest.fixture
def no_native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_NATIVE", "a_module_that_is_not_there")


def test_reference_by_name(tiny_dirs: dict[str, Path]) -> None:
    backend = load_backend(tiny_dirs["llama"], backend="reference", precision="bf16", pages=9)
    assert (backend.name, backend.variant, backend.pages) == ("reference", "torch-cpu-bf16", 9)


@pytest.mark.usefixtures("no_native")
def test_auto_falls_back_to_the_reference(tiny_dirs: dict[str, Path]) -> None:
    assert load_backend(tiny_dirs["llama"], pages=8).name == "reference"
    with pytest.raises(ImportError, match="native"):
        load_backend(tiny_dirs["llama"], backend="native")


@pytest.mark.usefixtures("native")
def test_auto_takes_the_native_backend_where_it_can_be_built(tiny_dirs: dict[str, Path]) -> None:
    backend: Any = load_backend(tiny_dirs["llama"], precision="int8", pages=12, threads=2)
    assert (backend.name, backend.precision, backend.pages, backend.threads) == ("native", "int8", 12, 2)


@pytest.mark.usefixtures("native")
def test_the_native_backend_is_for_cpus(tiny_dirs: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match=r"core\.device"):
        load_backend(tiny_dirs["llama"], backend="native", device="cuda")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"backend": "fast"}, "core.backend: 'fast' is unknown; allowed: auto, reference, native"),
        ({"precision": "fp64"}, "core.precision: 'fp64' is unknown; allowed: fp32, bf16, fp16, int8"),
        ({"backend": "reference", "precision": "int8"}, "'int8' is not built for the reference backend"),
    ],
)
def test_unknown_names_are_refused(tiny_dirs: dict[str, Path], settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        load_backend(tiny_dirs["llama"], **settings)
