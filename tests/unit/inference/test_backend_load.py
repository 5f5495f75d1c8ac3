"""A backend is picked by name; what is not there is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inference_svc.backends.load import load_backend
from inference_svc.backends.native import NativeBackend, NativeUnavailable


class _Native:
    """Stands for the native backend; remembers how it was loaded."""

    name = "native"

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NativeBackend, "load", lambda path, **settings: _Native(settings))


@pytest.fixture
def no_native(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise NativeUnavailable("native: no C++ compiler")

    monkeypatch.setattr(NativeBackend, "load", fail)


def test_reference_by_name(tiny_dirs: dict[str, Path]) -> None:
    backend = load_backend(tiny_dirs["llama"], backend="reference", precision="bf16", pages=9)
    assert (backend.name, backend.variant, backend.pages) == ("reference", "torch-cpu-bf16", 9)


@pytest.mark.usefixtures("no_native")
def test_auto_falls_back_to_the_reference_and_says_why(
    tiny_dirs: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    assert load_backend(tiny_dirs["llama"], pages=8).name == "reference"
    assert "no C++ compiler" in caplog.text
    with pytest.raises(NativeUnavailable, match="compiler"):
        load_backend(tiny_dirs["llama"], backend="native")


@pytest.mark.usefixtures("native")
def test_auto_takes_the_native_backend_where_it_can_be_had(tiny_dirs: dict[str, Path]) -> None:
    backend: Any = load_backend(tiny_dirs["llama"], precision="int8", pages=12, threads=2)
    assert backend.name == "native"
    assert backend.settings == {"precision": "int8", "pages": 12, "threads": 2}


@pytest.mark.usefixtures("native")
def test_a_device_other_than_the_cpu_is_the_references(tiny_dirs: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match=r"core\.device: 'abacus' cannot be used here"):
        load_backend(tiny_dirs["llama"], device="abacus")
    with pytest.raises(ValueError, match=r"core\.device for the native backend: 'cuda' .* allowed: cpu"):
        load_backend(tiny_dirs["llama"], backend="native", device="cuda")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"backend": "fast"}, "core.backend: 'fast' is not possible; allowed: auto, reference, native"),
        ({"precision": "fp64"}, "core.precision: 'fp64' is not possible; allowed: fp32, bf16, fp16, int8"),
        ({"backend": "reference", "precision": "int8"}, "'int8' is not built for the reference backend"),
    ],
)
def test_unknown_names_are_refused(tiny_dirs: dict[str, Path], settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        load_backend(tiny_dirs["llama"], **settings)
