"""Compiles the kernels: ``python -m inference_svc.backends.native.build [variant ...]``.

A library is kept under the hash of its source and flags and of the compiler's
version, so an old one is never loaded for a new source. Without a compiler, a
library that was built before (in an image, say) still serves.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from inference_svc.backends.native.cache import cache_dir, locked
from inference_svc.backends.native.errors import NativeUnavailable
from inference_svc.backends.native.variants import VARIANTS, Variant, by_name

_log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent / "src"
# Contraction stays off: the source spells out every fused multiply-add, so that
# sums round alike wherever the compiler puts them.
FLAGS = (
    "-std=c++20",
    "-O2",
    "-ffp-contract=off",
    "-fPIC",
    "-shared",
    "-pthread",
    "-static-libstdc++",
    "-static-libgcc",
)
_MINUTES = 10


def library(variant: Variant, defines: tuple[str, ...] = ()) -> Path:
    """Path of the built library, built now if need be. ``defines`` (``-DNAME``) are for tests.

    Raises:
        NativeUnavailable: there is neither a built library nor a compiler, or the compiler fails.
    """
    flags = (*FLAGS, *variant.flags, *defines)
    compiler = _compiler()
    home = cache_dir() / "native"
    source = _hash(_source_text(), *flags)
    if compiler is None:
        return _built_before(home, variant, source)
    target = home / f"{variant.name}-{source}-{_hash(_version(compiler))}.so"
    try:
        if target.is_file():
            return target
        with locked(target):
            if not target.is_file():
                _compile(compiler, flags, target)
    except OSError as error:
        _log.info("native: the cache %s cannot be used (%s); building for this process only", home, error)
        return _for_this_process(target.name, compiler, flags)
    return target


def _for_this_process(name: str, compiler: str, flags: tuple[str, ...]) -> Path:
    """The library in a folder that is gone with the process; compiled once in it."""
    target = _own_folder() / name
    if not target.is_file():
        _compile(compiler, flags, target)
    return target


@cache
def _own_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="kev-native-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _compiler() -> str | None:
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]
    return next((found for name in names if (found := shutil.which(name))), None)


def _version(compiler: str) -> str:
    try:
        return subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return compiler


def _source_text() -> str:
    return "".join(file.name + file.read_text() for file in sorted(SOURCES.iterdir()) if file.suffix in (".cpp", ".h"))


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _built_before(home: Path, variant: Variant, source: str) -> Path:
    found = sorted(home.glob(f"{variant.name}-{source}-*.so"))
    if not found:
        raise NativeUnavailable(
            "native: no C++ compiler found (g++, c++ or clang++; CXX names another) and no built kernels"
        )
    return found[-1]


def _compile(compiler: str, flags: tuple[str, ...], target: Path) -> None:
    _log.warning("native: compiling the %s kernels, once (about half a minute)", target.name.partition("-")[0])
    part = target.with_suffix(f".{os.getpid()}.part")
    command = [compiler, *flags, str(SOURCES / "engine.cpp"), "-o", str(part)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * _MINUTES)
        if done.returncode:
            raise NativeUnavailable(f"native: {compiler} failed: {done.stderr.strip()[-2000:]}")
        part.replace(target)
    except subprocess.TimeoutExpired as error:
        raise NativeUnavailable(f"native: {compiler} took longer than {_MINUTES} minutes") from error
    finally:
        part.unlink(missing_ok=True)


def main(names: list[str]) -> int:
    """Builds the named variants, all of them by default; they need not run on this machine."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        for variant in [by_name(name) for name in names] or VARIANTS:
            built = library(variant)
            if built.parent != cache_dir() / "native":
                raise NativeUnavailable(
                    f"native: the cache {cache_dir()} cannot be written; KEV_CACHE_DIR names another"
                )
            sys.stdout.write(f"{built}\n")
    except (NativeUnavailable, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
