"""The AVX-512 kernels on any machine: the same source, with their instructions written out in C++.

What this cannot show is the compiler's work and the machine's rounding of
``vdpbf16ps``; what it does show is that layouts, tiles and sums are right at
twice the width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from inference_models import oracle_logits, random_model, tokens_of
from native_support import PRECISIONS, load, load_written_out, score

from inference_svc.backends.native import NativeBackend, build
from inference_svc.backends.native import backend as backend_module
from inference_svc.backends.native.variants import Variant, by_name, processor_features
from inference_svc.verify import Prompt, self_test
from inference_svc.verify.checks import packed_alone
from inference_svc.verify.report import same_bits

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not by_name("avx2").needs <= processor_features(), reason="the emulation is built with AVX2"),
]
"""The first test compiles the kernels."""

_HEADERS = Path(__file__).parent / "native_emulated"
_SWITCHES = {
    "avx512": ("-D__AVX512F__",),
    "avx512bf16": ("-D__AVX512F__", "-D__AVX512VNNI__", "-D__AVX512BF16__"),
}


def _emulate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backends that are loaded from now on are of this variant."""
    flags = (*by_name("avx2").flags, f"-I{_HEADERS}", "-DKEV_NO_ASM", *_SWITCHES[name])

    def library(variant: Variant) -> Path:
        return build.library(replace(variant, name=f"{name}emulated", flags=flags))

    monkeypatch.setattr(backend_module, "choose", lambda _: by_name(name))
    monkeypatch.setattr(backend_module, "library", library)


@pytest.fixture(params=[(name, precision) for name in _SWITCHES for precision in PRECISIONS], ids="-".join)
def backend(
    request: pytest.FixtureRequest, save_tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> NativeBackend:
    name, precision = request.param
    _emulate(name, monkeypatch)
    return load(save_tiny("llama"), precision, threads=2)


def test_parity(backend: NativeBackend) -> None:
    tokens = np.array(tokens_of(3, 60), np.int32)
    expected = oracle_logits(random_model("llama"), tokens)
    found = score(backend, tokens, 60)
    limit = 1e-4 if backend.precision == "fp32" else 0.08
    assert np.abs(found - expected).mean() < limit * np.abs(expected).mean()


def test_isolation(backend: NativeBackend) -> None:
    report = self_test(backend)
    assert report.passed, report.failures
    prompts = [Prompt(tokens_of(n, length), tokens_of(n + 100, 2), 64) for n, length in enumerate((1, 15, 17, 40, 33))]
    check = packed_alone(backend, prompts, starts=[0, 1, 0, 2, 1])
    assert check.passed, check.detail


@pytest.mark.parametrize("name", _SWITCHES)
@pytest.mark.parametrize("rows", [1, 2, 12, 25, 60])
def test_nibbles_give_nearly_the_same_at_every_width(
    coded_model: Path, monkeypatch: pytest.MonkeyPatch, name: str, rows: int
) -> None:
    """Whole numbers are not rounded; what differs is the order of other sums, and the bits of the head's rows."""
    tokens = np.array(tokens_of(3, rows), np.int32)
    narrow = score(load(coded_model, "int8", threads=2), tokens, rows)
    _emulate(name, monkeypatch)
    wide = load(coded_model, "int8", threads=2)
    assert wide.packed.form == "nibbles"
    assert np.abs(score(wide, tokens, rows) - narrow).mean() < 0.03 * np.abs(narrow).mean()
    report = self_test(wide)
    assert report.passed, report.failures


@pytest.mark.parametrize("name", _SWITCHES)
@pytest.mark.parametrize("rows", [1, 2, 11, 13, 60, 140])
def test_codes_give_the_same_bits_as_numbers(
    coded_model: Path, monkeypatch: pytest.MonkeyPatch, name: str, rows: int
) -> None:
    _emulate(name, monkeypatch)
    tokens = np.array(tokens_of(3, rows), np.int32)
    coded = score(load(coded_model, "fp32", threads=2), tokens, rows)
    assert same_bits(coded, score(load_written_out(coded_model, monkeypatch, threads=2), tokens, rows))
