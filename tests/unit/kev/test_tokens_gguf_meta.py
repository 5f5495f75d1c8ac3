"""Metadata of a GGUF file: read as another library writes it, and damaged files refused in one line."""

import contextlib
import struct
from pathlib import Path

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokens_samples import write_gguf

from kev.tokens.gguf_meta import GgufError, read_metadata
from kev.tokens.tokenizer import Tokenizer, TokenizerError


def test_every_kind_of_value_comes_back(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "m.gguf"), "llama")
    writer.add_uint8("u8", 200)
    writer.add_int16("i16", -3)
    writer.add_uint64("u64", 1 << 60)
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("text", "naïve 你好")
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("floats", [0.5, -1.0])
    writer.add_array("strings", ["a", "", "ü"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    meta = read_metadata(tmp_path / "m.gguf")
    assert meta["general.architecture"] == "llama"
    assert (meta["u8"], meta["i16"], meta["u64"], meta["yes"]) == (200, -3, 1 << 60, True)
    assert (meta["f32"], meta["f64"]) == (0.5, 0.1)
    assert meta["text"] == "naïve 你好"
    assert (meta["numbers"], meta["floats"]) == ([1, 2, 3], [0.5, -1.0])
    assert meta["strings"] == [b"a", b"", "ü".encode()]


@pytest.mark.slow
@pytest.mark.model
def test_agrees_with_the_reference_reader(default_model: Path) -> None:
    ours, theirs = read_metadata(default_model), gguf.GGUFReader(str(default_model)).fields
    assert set(ours) == {name for name in theirs if not name.startswith("GGUF.")}
    for name, value in ours.items():
        expected = theirs[name].contents()
        if isinstance(value, list) and isinstance(value[0], bytes):
            value = [item.decode() for item in value]
        assert value == expected, name


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "too short"),
        (b"PK\x03\x04" + b"\0" * 40, "does not begin with 'GGUF'"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1 is not supported; allowed: 2 and 3"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "allowed: 2 and 3, little endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 40), "metadata keys"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 50), "past its end"),
    ],
)
def test_what_is_no_gguf_file_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "bad.gguf").write_bytes(content)
    with pytest.raises(GgufError, match=says):
        read_metadata(tmp_path / "bad.gguf")


@settings(max_examples=60)
@given(data=st.data())
def test_a_damaged_file_gives_a_typed_error_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("gguf")
    whole = bytearray(write_gguf(folder / "ok.gguf").read_bytes())
    cut = data.draw(st.integers(0, len(whole)))
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=4)):
        whole[at] ^= 0xFF
    (folder / "bad.gguf").write_bytes(bytes(whole[:cut]))
    with contextlib.suppress(TokenizerError):
        Tokenizer.load(folder / "bad.gguf")
