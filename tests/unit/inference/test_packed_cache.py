"""The cache of packed weights: whatever lies in a file's place, a model has the bits of a fresh packing."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inference_models import tokens_of
from native_support import load, score

from inference_svc.backends.native import packed
from inference_svc.backends.native.packed import open_packed
from inference_svc.backends.native.packing import FORMAT, Array
from inference_svc.backends.native.variants import by_name
from inference_svc.rows import Float32Array

pytestmark = pytest.mark.timeout(600)
"""The first test may have to compile the kernels."""

TOKENS = np.array(tokens_of(3, 20), np.int32)


def _logits(model: Path) -> Float32Array:
    return score(load(model, "bf16", pages=4, threads=1), TOKENS, 5)


@pytest.fixture(scope="module")
def model(save_tiny: Callable[..., Path]) -> Path:
    return save_tiny("llama")


@pytest.fixture(scope="module")
def fresh(model: Path) -> Float32Array:
    """What the model says with weights that no file ever held."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "place_of", lambda *_: Path(os.devnull) / "weights" / "file.kev")
        return _logits(model)


@pytest.fixture
def file(model: Path, fresh: Float32Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's file of the model, in a folder of the test's own, written by a first start."""
    usual = packed.place_of
    monkeypatch.setattr(packed, "place_of", lambda *key: tmp_path / "weights" / usual(*key).name)
    assert np.array_equal(_logits(model), fresh)
    (made,) = (tmp_path / "weights").glob("*.kev")
    return made


def _changed(at: int, new: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        place = at % len(data)
        return data[:place] + new + data[place + len(new) :]

    return change


OLD_HEAD = b'KEVPACK1\x30\0\0\0\0\0\0\0{"config": {}, "form": "bf16", "offsets": {}}   '

BYTES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut off": lambda data: data[:-64],
    "only a head": lambda data: data[:64],
    "too long": lambda data: data + bytes(64),
    "twice": lambda data: data * 2,
    "another magic": _changed(0, b"KEVPACK9"),
    "an older format": _changed(0, OLD_HEAD),
    "a deep list": lambda data: b"KEVPACK1" + (1 << 20).to_bytes(8, "little") + b"[" * (1 << 20),
    "another checksum": _changed(8, bytes(32)),
    "a stray byte in the head": _changed(63, b"\1"),
    "one bit of the first array": lambda data: _changed(64, bytes([data[64] ^ 1]))(data),
    "the last byte": lambda data: _changed(-1, bytes([data[-1] ^ 0x80]))(data),
    "the last 4 KiB are zeros": _changed(-4096, bytes(4096)),
    "all zeros": lambda data: bytes(len(data)),
    "moved by a line": lambda data: data[:64] + data[128:] + data[64:128],
}


def _with_bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = change(path.read_bytes())
        path.unlink()
        path.write_bytes(data)

    return damage


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link_to_fifo(path: Path) -> None:
    _fifo(path)
    path.symlink_to(path.rename(path.with_name("pipe")))


def _socket(path: Path) -> None:
    path.unlink()
    os.chdir(path.parent)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)


def _link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _hidden(path: Path) -> None:
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")


DAMAGES: dict[str, Callable[[Path], None]] = {
    **{name: _with_bytes(change) for name, change in BYTES.items()},
    "a pipe": _fifo,
    "a link to a pipe": _link_to_fifo,
    "a socket": _socket,
    "a link to itself": _link_to_itself,
    "not readable": _hidden,
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_named_once_and_packed_anew(
    model: Path,
    fresh: Float32Array,
    file: Path,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(file.parent)
    whole = file.read_bytes()
    damage(file)
    assert np.array_equal(_logits(model), fresh)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert str(file) in record.getMessage()
    assert file.is_file()
    assert not file.is_symlink()
    assert file.read_bytes() == whole
    assert np.array_equal(_logits(model), fresh)
    assert len(caplog.records) == 1, "the repaired file is used"


def test_a_folder_in_its_place_is_left_alone(
    model: Path, fresh: Float32Array, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.unlink()
    file.mkdir()
    assert np.array_equal(_logits(model), fresh)
    assert caplog.text.count("not a regular file") == 1
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(".")] == []


def _bad_disk(*_: object) -> int:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("read", [_bad_disk, lambda *_: 0], ids=["an error", "nothing more"])
def test_a_file_that_cannot_be_read_to_its_end_is_not_needed(
    model: Path,
    fresh: Float32Array,
    file: Path,
    read: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(os, "preadv", read)
    assert np.array_equal(_logits(model), fresh)
    assert caplog.text.count(str(file)) == 2, "as it was found, and as it was written anew"


def test_a_sound_file_is_used_as_it_is(model: Path, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    stamp = file.stat().st_mtime_ns
    first = open_packed(model, "bf16", by_name("avx2"))
    second = open_packed(model, "bf16", by_name("avx2"))
    assert second.config == first.config
    assert np.array_equal(second.memory, first.memory)
    assert not second.memory.flags.writeable
    assert file.stat().st_mtime_ns == stamp
    assert not caplog.records


def test_a_linked_cache_is_a_cache(
    model: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "link").symlink_to(file.parent)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / file.name).symlink_to(file)
    monkeypatch.setattr(packed, "_pack", None)
    for folder in ("link", "links"):
        monkeypatch.setattr(packed, "place_of", lambda *_, folder=folder: tmp_path / folder / file.name)
        _logits(model)
    assert not caplog.records


def test_a_mapped_file_may_be_replaced(model: Path, fresh: Float32Array, file: Path) -> None:
    backend = load(model, "bf16", pages=4, threads=1)
    file.unlink()
    file.write_bytes(b"something else")
    open_packed(model, "bf16", by_name("avx2"))
    assert np.array_equal(score(backend, TOKENS, 5), fresh)


def test_older_formats_go_when_a_file_is_packed(model: Path, file: Path) -> None:
    older = file.with_name(file.name.replace(f"-{FORMAT}.kev", f"-{FORMAT - 1}.kev"))
    older.write_bytes(b"")
    open_packed(model, "bf16", by_name(file.name.split("-")[2]))
    assert older.exists(), "nothing was packed"
    file.unlink()
    open_packed(model, "bf16", by_name(file.name.split("-")[2]))
    assert not older.exists()


@pytest.mark.parametrize("place", ["a file", "~no-such-user/cache"])
def test_weights_are_packed_in_memory_where_the_cache_cannot_be_written(
    model: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    kept = open_packed(model, "bf16", by_name("avx2"))
    (tmp_path / "a file").write_text("")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEV_CACHE_DIR", place)
    before = sorted(tmp_path.iterdir())
    assert np.array_equal(open_packed(model, "bf16", by_name("avx2")).memory, kept.memory)
    assert sorted(tmp_path.iterdir()) == before


# ---- any damage

EDITS = st.lists(
    st.tuples(st.sampled_from(["flip", "cut", "insert", "end"]), st.floats(0, 1), st.binary(min_size=1, max_size=99)),
    min_size=1,
    max_size=5,
)


def _edited(data: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
    for kind, where, some in edits:
        at = int(where * len(data))
        if kind == "flip":
            old = data[at : at + len(some)]
            new = bytes(a ^ b for a, b in zip(old, some, strict=False))
            data = data[:at] + new + data[at + len(old) :]
        elif kind == "cut":
            data = data[:at] + data[at + len(some) :]
        elif kind == "insert":
            data = data[:at] + some + data[at:]
        else:
            data = data[:at]
    return data


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(edits=EDITS)
def test_no_damage_is_ever_computed_with(
    model: Path, file: Path, caplog: pytest.LogCaptureFixture, edits: list[tuple[str, float, bytes]]
) -> None:
    variant = by_name(file.name.split("-")[2])
    expected: Array = np.fromfile(file, np.uint8)
    caplog.clear()
    damaged = _edited(expected.tobytes(), edits)
    file.unlink()
    file.write_bytes(damaged)
    assert np.array_equal(open_packed(model, "bf16", variant).memory, expected[64:])
    assert file.read_bytes() == expected.tobytes()
    assert len(caplog.records) == (damaged != expected.tobytes())
