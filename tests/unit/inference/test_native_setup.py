"""Loading the native backend: variants, build, packed weights, refusals by name."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from inference_models import tokens_of
from native_support import load, score

from inference_svc.backends.native import NativeBackend, NativeUnavailable, build
from inference_svc.backends.native.cache import _warn_once, cache_dir, locked, publish
from inference_svc.backends.native.variants import VARIANTS, by_name, choose, processor_features
from inference_svc.rows import Pack, Span

pytestmark = pytest.mark.timeout(600)
"""The first test may have to compile the kernels."""

ALL = frozenset[str]().union(*(variant.needs for variant in VARIANTS))


def _row(token: int = 1, position: int = 0, page: int = 0) -> Pack:
    return Pack.of([Span(0, np.array([token], np.int32), position, np.array([page] * 40, np.int32))])


# ---- variants


def test_the_best_variant_that_the_processor_can_run() -> None:
    assert choose(features=ALL).name == "avx512bf16"
    assert choose(features=ALL - {"avx512_bf16"}).name == "avx512"
    assert choose(features=frozenset({"avx2", "fma", "f16c", "sse2"})).name == "avx2"


def test_a_variant_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose("avx2", ALL).name == "avx2"
    monkeypatch.setenv("KEV_NATIVE_VARIANT", "avx512")
    assert choose(features=ALL).name == "avx512"
    with pytest.raises(ValueError, match="avx512bf16, avx512, avx2"):
        choose("sse2", ALL)


def test_a_processor_without_the_instructions_is_told_which() -> None:
    with pytest.raises(NativeUnavailable, match="avx2"):
        choose(features=frozenset({"sse2"}))
    with pytest.raises(NativeUnavailable, match="avx512f"):
        choose("avx512", frozenset({"avx2", "fma"}))


def test_features_come_from_the_system(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nflags\t\t: fpu sse2 avx2 fma\n")
    assert processor_features(tmp_path / "nothing") == frozenset()
    assert {"avx2", "fma"} <= processor_features(cpuinfo) or not processor_features(cpuinfo)


# ---- build


def test_without_a_compiler_the_reason_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KEV_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(NativeUnavailable, match="no C\\+\\+ compiler"):
        build.library(by_name("avx2"))


def test_without_a_compiler_an_earlier_build_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built = _fake_build(monkeypatch, tmp_path, "echo 1; cp /dev/null $6; touch $out")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build.library(by_name("avx2")) == built


def test_a_build_is_made_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        built = _fake_build(monkeypatch, tmp_path, "touch $out")
        assert build.library(by_name("avx2")) == built
    assert caplog.text.count("compiling the avx2 kernels") == 1


def test_a_failing_compiler_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(NativeUnavailable, match="too old for this"):
        _fake_build(monkeypatch, tmp_path, "echo too old for this >&2; exit 1")
    assert not list((tmp_path / "cache" / "native").glob("*.so"))


def test_an_unwritable_cache_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the directory should be")
    script = f"echo compiled >> {tmp_path}/calls; touch $out"
    first = _fake_build(monkeypatch, tmp_path, script)
    assert first.is_file()
    assert _fake_build(monkeypatch, tmp_path, script) == first
    assert (tmp_path / "calls").read_text().count("compiled") == 1, "once in a process"


def test_what_was_built_for_one_process_is_gone_with_it(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the directory should be")
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nfor last; do out=$last; done\n[ "$1" = --version ] || touch "$out"\n')
    compiler.chmod(0o755)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    places = {"CXX": str(compiler), "KEV_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(temporary)}
    program = (
        "from inference_svc.backends.native import build, variants; print(build.library(variants.by_name('avx2')))"
    )
    used = _run_python(["-c", program], places)
    assert used.returncode == 0, used.stderr
    assert Path(used.stdout.strip()).parent.parent == temporary
    built = _run_python(["-m", "inference_svc.backends.native.build", "avx2"], places)
    assert built.returncode == 1
    assert f"the cache {tmp_path / 'cache'} cannot be written" in built.stderr
    assert not list(temporary.iterdir())


def _run_python(arguments: list[str], places: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, env={**os.environ, **places}, capture_output=True, text=True, timeout=60)


def _fake_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> Path:
    """Builds with a shell script for a compiler; `$out` is the file that it should write."""
    compiler = tmp_path / "compiler"
    compiler.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && {{ echo 1; exit 0; }}\nfor last; do out=$last; done\n{script}\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("KEV_CACHE_DIR", str(tmp_path / "cache"))
    return build.library(by_name("avx2"))


# ---- the cache


def test_the_cache_is_where_the_deployment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KEV_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "kev"
    monkeypatch.setenv("KEV_CACHE_DIR", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"


@pytest.mark.parametrize("place", ["~no-such-user/cache", "~/cache", ""])
def test_a_cache_that_cannot_be_told_is_one_that_cannot_be_written(
    place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def homeless(path: str) -> str:
        return path  # what the system answers for an unknown user, and where there is no home

    _warn_once.cache_clear()
    monkeypatch.setattr("os.path.expanduser", homeless)
    monkeypatch.setenv("KEV_CACHE_DIR", place)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with pytest.raises(OSError, match="Not a directory"), locked(cache_dir() / "weights" / "file"):
            pass
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert (place or "~/.cache") in caplog.text
    assert not list(tmp_path.iterdir())


def test_a_pipe_in_the_place_of_a_lock_stops_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file.lock")
    with locked(tmp_path / "file"):
        pass


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    def fail(stream: object) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        publish(tmp_path / "file", fail)
    assert list(tmp_path.iterdir()) == []


# ---- refusals


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "fp16"}, "fp16 is not built"),
        ({"precision": "int4"}, "fp32, bf16, int8"),
        ({"pages": 0}, "pages must be at least 1"),
        ({"pages": 2**32 + 1}, "pages must be below 2147483648"),
        ({"threads": 0}, "threads"),
        ({"max_context": 513}, "max_context: allowed are 1 .. 512"),
        ({"variant": "mmx"}, "avx2"),
    ],
)
def test_a_bad_argument_is_named(save_tiny: Callable[..., Path], settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NativeBackend.load(save_tiny("llama"), **{"precision": "fp32", "pages": 4, **settings})  # type: ignore[arg-type]


def test_a_shape_without_kernels_is_left_to_the_reference(save_tiny: Callable[..., Path]) -> None:
    with pytest.raises(NativeUnavailable, match="multiple of 32 for int8"):
        NativeBackend.load(save_tiny("qwen2"), precision="int8", pages=4)


@pytest.mark.parametrize(
    ("pack", "message"),
    [
        (_row(token=257), "token ids are 0 .. 256"),
        (_row(token=-1), "token ids"),
        (_row(position=512), "513 positions, max_context is 512"),
        (_row(page=4), "page ids are 0 .. 3"),
        (_row(page=-1), "page ids"),
    ],
)
def test_a_bad_pack_is_refused_before_anything_is_written(
    save_tiny: Callable[..., Path], pack: Pack, message: str
) -> None:
    backend = load(save_tiny("llama"), "fp32", pages=4)
    with pytest.raises(ValueError, match=message):
        backend.forward(pack)
    with pytest.raises(ValueError, match="page ids"):
        backend.scrub([4])
    with pytest.raises(ValueError, match="page ids"):
        backend.copy_page(0, -1)


# ---- results


def test_results_are_the_callers_to_keep(save_tiny: Callable[..., Path]) -> None:
    backend = load(save_tiny("llama"), "fp32")
    kept = [backend.forward(_row(token)) for token in range(5)]
    copies = [logits.copy() for logits in kept]
    for token in range(5, 9):
        backend.forward(_row(token))
    assert all(np.array_equal(*pair) for pair in zip(kept, copies, strict=True))


def test_a_row_of_a_kept_result_is_kept_as_well(save_tiny: Callable[..., Path]) -> None:
    backend = load(save_tiny("llama"), "fp32")
    row = backend.forward(_row(1))[0]
    copy = row.copy()
    for token in range(2, 9):
        backend.forward(_row(token))
    assert np.array_equal(row, copy)


def test_no_wanted_row_gives_no_logits(save_tiny: Callable[..., Path]) -> None:
    backend = load(save_tiny("llama"), "fp32")
    tokens = np.array(tokens_of(1, 20), np.int32)
    pages = np.arange(2, dtype=np.int32)
    assert backend.forward(Pack.of([Span(0, tokens[:19], 0, pages, wanted=0)])).shape == (0, 257)
    after = backend.forward(Pack.of([Span(0, tokens[19:], 19, pages)]))
    assert np.array_equal(after, score(backend, tokens, 1))


def test_a_closed_backend_says_so(save_tiny: Callable[..., Path]) -> None:
    backend = load(save_tiny("llama"), "fp32")
    backend.close()
    backend.close()
    with pytest.raises(RuntimeError, match="closed"):
        backend.forward(_row())
