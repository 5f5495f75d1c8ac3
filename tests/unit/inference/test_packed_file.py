"""The file of packed weights: what was written is read back, and nothing else is ever taken for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_lab import write as write_gguf
from hypothesis import given
from hypothesis import strategies as st
from inference_models import SIZES

from inference_svc.backends.native.layout import ALIGN, Layout, layout, padded, section_bytes
from inference_svc.backends.native.leftovers import remove_leftovers
from inference_svc.backends.native.packed_file import HEAD, Unfit, in_memory, mapped, write
from inference_svc.backends.native.packing import coded_sections, sections
from inference_svc.backends.native.variants import VARIANTS, Variant
from inference_svc.models import load_codes, load_weights

NAME = "weights.kev"
ARRAYS: dict[str, Any] = {
    "one": np.arange(25, dtype=np.float32),
    "two": np.arange(1200, dtype=np.uint16).reshape(10, 120).T,
    "three": np.arange(64, dtype=np.int8),
}
PLAN = Layout({"one": (0, 100), "two": (128, 2400), "three": (2560, 64)}, 2624)
ALL_VARIANTS = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the examples of a property are written, one after the other."""
    return tmp_path_factory.mktemp("packed") / NAME


@pytest.fixture(scope="module")
def whole(file: Path) -> bytes:
    with file.open("wb") as stream:
        write(stream, NAME, PLAN, ARRAYS)
    return file.read_bytes()


def test_what_was_written_is_read_back(file: Path, whole: bytes) -> None:
    file.write_bytes(whole)
    found = mapped(file, PLAN)
    assert not found.flags.writeable
    for name, (start, size) in PLAN.offsets.items():
        assert found[start : start + size].tobytes() == ARRAYS[name].tobytes()
    assert np.array_equal(in_memory(PLAN, ARRAYS), found)


def test_a_layout_of_other_arrays_is_refused(file: Path) -> None:
    for wrong in ({"one": (0, 100)}, {**PLAN.offsets, "three": (2560, 65)}, {**PLAN.offsets, "four": (2624, 1)}):
        with pytest.raises(ValueError, match=r"layout|zip"):
            in_memory(Layout(wrong, 2700), ARRAYS)


@given(st.data())
def test_every_other_byte_is_noticed(file: Path, whole: bytes, data: st.DataObject) -> None:
    damaged = bytearray(whole)
    places = st.integers(0, len(whole) - 1)
    for place, bits in data.draw(st.dictionaries(places, st.integers(1, 255), min_size=1, max_size=9)).items():
        damaged[place] ^= bits
    file.write_bytes(damaged)
    with pytest.raises(Unfit, match="checksum"):
        mapped(file, PLAN)


@given(st.binary(max_size=2 * HEAD) | st.binary(min_size=HEAD, max_size=HEAD))
def test_no_other_head_is_believed(file: Path, whole: bytes, head: bytes) -> None:
    for damaged in (head, head + whole[HEAD:], head + whole):
        file.write_bytes(damaged)
        if damaged != whole:
            with pytest.raises(Unfit):
                mapped(file, PLAN)


def test_a_file_under_another_name_is_not_believed(file: Path, whole: bytes) -> None:
    other = file.with_name("other.kev")
    other.write_bytes(whole)
    with pytest.raises(Unfit, match="checksum"):
        mapped(other, PLAN)


def test_a_file_of_somebody_else_is_not_believed(file: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(whole)
    owners = {"file": 5, "folder": 6}

    def owned_by(uid: int, found: os.stat_result) -> os.stat_result:
        return os.stat_result([*found[:4], uid, *found[5:]])

    fstat, stat = os.fstat, Path.stat
    monkeypatch.setattr(os, "fstat", lambda file: owned_by(owners["file"], fstat(file)))
    monkeypatch.setattr(Path, "stat", lambda path: owned_by(owners["folder"], stat(path)))
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    with pytest.raises(Unfit, match="another user"):
        mapped(file, PLAN)
    for owners["file"] in (0, 6, 7):
        mapped(file, PLAN)


# ---- the layout is that of the arrays


def _laid_out(arrays: dict[str, Any], plan: Layout, sizes: list[tuple[str, int]]) -> bool:
    assert all(start % ALIGN == 0 for start, _ in plan.offsets.values())
    assert plan.size == sum(padded(array.nbytes) for array in arrays.values())
    return sizes == [(name, array.nbytes) for name, array in arrays.items()]


@ALL_VARIANTS
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("family", SIZES)
def test_the_layout_is_that_of_the_arrays(
    tiny_dirs: dict[str, Path], family: str, precision: str, variant: Variant
) -> None:
    config, weights = load_weights(tiny_dirs[family])
    if precision == "int8" and config.hidden % 32:
        pytest.skip("the kernels do not have this shape")
    arrays = dict(sections(config, weights, precision, variant))
    assert _laid_out(arrays, layout(config, precision, variant), list(section_bytes(config, precision, variant)))


@ALL_VARIANTS
@pytest.mark.parametrize("tied", [False, True], ids=["a head of its own", "tied"])
def test_so_is_that_of_codes(tmp_path: Path, tied: bool, variant: Variant) -> None:
    write_gguf(tmp_path / "model.gguf", "Q4_1", tied=tied)
    for precision, form in (("fp32", "codes"), ("int8", "nibbles")):
        codes = load_codes(tmp_path / "model.gguf", precision)
        assert codes is not None
        arrays = dict(coded_sections(codes, variant))
        plan = layout(codes.config, form, variant)
        assert _laid_out(arrays, plan, list(section_bytes(codes.config, form, variant)))


# ---- what a new file takes the place of

DIGEST = "0123456789abcdef" * 2


def test_older_formats_and_abandoned_parts_are_removed(tmp_path: Path) -> None:
    own = f"{DIGEST}-bf16-avx2-12.kev"
    gone = [f"{DIGEST}-bf16-avx2-{n}.kev{lock}" for n in (1, 9, 11) for lock in ("", ".lock")]
    gone += [f"{DIGEST}-bf16-avx512bf16-2.kev", f".{own}.a1_b2c3d"]
    kept = [own, f"{own}.lock", f"{DIGEST}-bf16-avx2-13.kev", f"{DIGEST}-fp32-avx2-1.kev", f"{DIGEST}-bf16-avx2-01.kev"]
    kept += [f"{DIGEST[::-1]}-bf16-avx2-1.kev", f"{DIGEST}-bf16-avx2-1.kev.bak", f"{DIGEST}-bf16-neon-1.kev"]
    kept += [f"{DIGEST.upper()}-bf16-avx2-1.kev", f"x{DIGEST}-bf16-avx2-1.kev", f"{DIGEST}-bf16-avx2-1.kev\n"]
    kept += [f".{own}.short", f".{own}.a1_b2c3dd", f".{DIGEST}-bf16-avx2-11.kev.a1_b2c3d", "model.gguf"]
    for name in gone + kept:
        (tmp_path / name).write_text("")
    folder = tmp_path / f"{DIGEST}-bf16-avx2-3.kev"
    folder.mkdir()
    remove_leftovers(tmp_path / own)
    assert {path.name for path in tmp_path.iterdir()} == {*kept, folder.name}


def test_another_name_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / f"{DIGEST}-bf16-avx2-1.kev").write_text("")
    remove_leftovers(tmp_path / "weights.kev")
    remove_leftovers(tmp_path / "nowhere" / f"{DIGEST}-bf16-avx2-2.kev")
    assert len(list(tmp_path.iterdir())) == 1
