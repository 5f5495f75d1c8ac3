"""Tokenizers of Hugging Face directories: both ways of writing spaces, and the small files beside them."""

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from kev.tokens.chat import ChatFormat
from kev.tokens.tokenizer import Tokenizer, TokenizerError

PIECES = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)], "▁", "h", "i", "hi", "▁hi"]
MERGES = [("h", "i"), ("▁", "hi")]
HI, SPACE_HI = PIECES.index("hi"), PIECES.index("▁hi")
BOS, EOS = 1, 2


def directory(folder: Path, legacy: bool = False, **config: object) -> Path:
    """A Llama-like tokenizer: the space in front of every text (legacy), or of the first one only."""
    vocab = {piece: token for token, piece in enumerate(PIECES)}
    backend = Backend(models.BPE(vocab, MERGES, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if legacy:
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    backend.add_tokens([AddedToken("<tool>", normalized=False)])
    backend.save(str(folder / "tokenizer.json"))
    values = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    return folder


def test_the_space_in_front_of_the_first_word_only(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(directory(tmp_path))
    assert tokenizer.encode_text("hi hi") == [SPACE_HI, SPACE_HI]
    assert tokenizer.encode_text("hi hi", at_start=False) == [HI, SPACE_HI]
    assert tokenizer.decode([HI, SPACE_HI]) == "hi hi"


def test_the_space_in_front_of_every_text(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(directory(tmp_path, legacy=True))
    assert tokenizer.encode_text("hi", at_start=False) == [SPACE_HI]


def test_text_spells_special_tokens_in_bytes(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(directory(tmp_path))
    ids = tokenizer.encode_text("<s></s><tool>好")
    assert tokenizer.special_ids.isdisjoint(ids)
    assert tokenizer.decode(ids) == " <s></s><tool>好"
    assert tokenizer.special == {"<s>": BOS, "</s>": EOS, "<tool>": len(PIECES)}


def test_a_chat_template_of_its_own_file_and_the_begin_token(tmp_path: Path) -> None:
    folder = directory(tmp_path, chat_template="not this one")
    source = "{{ bos_token }}{% for m in messages %}{{ m['content'] + eos_token }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(source)
    prompt = ChatFormat(Tokenizer.load(folder)).render([{"role": "user", "content": "hi"}])
    assert prompt.tokens == [BOS, HI, EOS]


@pytest.mark.parametrize(
    "template", ["{{ 'x' }}", [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "{{ 'x' }}"}]]
)
def test_one_template_or_several(tmp_path: Path, template: object) -> None:
    assert Tokenizer.load(directory(tmp_path, chat_template=template)).chat_template == "{{ 'x' }}"


def test_ends_come_from_every_file_that_names_some(tmp_path: Path) -> None:
    folder = directory(tmp_path)
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    (folder / "config.json").write_text('{"eos_token_id": 9}')
    assert Tokenizer.load(folder).eos_ids == {2, 7, 9}


def test_the_digest_follows_the_template(tmp_path: Path) -> None:
    first = Tokenizer.load(directory(tmp_path, chat_template="a")).digest
    assert Tokenizer.load(directory(tmp_path, chat_template="b")).digest != first
    assert Tokenizer.load(directory(tmp_path, chat_template="a")).digest == first


def test_a_damaged_tokenizer_says_so(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": 5}}))
    with pytest.raises(TokenizerError, match=r"tokenizer.json cannot be used"):
        Tokenizer.load(tmp_path)
