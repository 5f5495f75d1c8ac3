"""The tokenizer says what the reference implementations say, and text never becomes a special token."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers
from tokens_samples import SPECIAL_TEXTS, TEXTS, write_gguf

from kev.tokens.gguf_meta import read_metadata
from kev.tokens.pretokenizers import PATTERNS, pre_tokenizer
from kev.tokens.tokenizer import Tokenizer, TokenizerError

SPACES_BEFORE_NUMBER = re.compile(r"\s[\s\xa0]\d|\W[²³¼Ⅷ]")


@pytest.fixture(scope="module")
def tokenizer(default_model: Path) -> Tokenizer:
    return Tokenizer.load(default_model)


@pytest.fixture(scope="module")
def reference(default_model: Path) -> Backend:
    """The published pipeline of the model (digits by themselves, then byte-level BPE), special tokens and all."""
    meta = read_metadata(default_model)
    tokens = [token.decode() for token in meta["tokenizer.ggml.tokens"]]
    merges = [tuple(merge.decode().split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    backend = Backend(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    kinds = meta["tokenizer.ggml.token_type"]
    backend.add_special_tokens([token for token, kind in zip(tokens, kinds, strict=True) if kind == 3])
    return backend


def real_questions() -> list[str]:
    """Question sets (JSON lines with `text`) from the folder KEV_TEST_QUESTIONS, where it is set."""
    folder = os.environ.get("KEV_TEST_QUESTIONS")
    files = sorted(Path(folder).glob("*.jsonl")) if folder else []
    return [json.loads(line)["text"] for file in files for line in file.read_text("utf-8").splitlines()]


@pytest.mark.model
@pytest.mark.timeout(300)
def test_agrees_with_transformers_on_the_same_file(tokenizer: Tokenizer, default_model: Path) -> None:
    """transformers ignores the pre-tokenizer that the file names ("smollm": every digit by itself).

    That shows only where two or more spaces precede a number; there the published pipeline is the judge.
    """
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(default_model.parent, gguf_file=default_model.name)
    for text in [*TEXTS, *real_questions()]:
        if not SPACES_BEFORE_NUMBER.search(text):
            assert tokenizer.encode_text(text) == theirs(text, add_special_tokens=False).input_ids, text


@pytest.mark.model
def test_agrees_with_the_published_pipeline_and_comes_back(tokenizer: Tokenizer, reference: Backend) -> None:
    for text in [*TEXTS, *real_questions()]:
        ids = tokenizer.encode_text(text)
        assert ids == reference.encode(text, add_special_tokens=False).ids, text
        assert tokenizer.decode(ids) == text


@pytest.mark.model
def test_long_texts_have_the_same_tokens_and_let_other_threads_run(tokenizer: Tokenizer, reference: Backend) -> None:
    text = "Ein Wort, 字字, 12 🙂 and more. " * 20_000
    turns = 0
    with ThreadPoolExecutor(1) as other:
        encoding = other.submit(tokenizer.encode_spans, text)
        while not encoding.done():
            sleep(0.001)
            turns += 1
    tokens, spans = encoding.result()
    expected = reference.encode(text, add_special_tokens=False)
    assert (tokens, spans) == (expected.ids, expected.offsets)
    assert turns > 20, "the encoder held everybody up"


@pytest.mark.model
@given(text=st.text(max_size=60))
def test_agrees_with_the_published_pipeline_on_any_text(tokenizer: Tokenizer, reference: Backend, text: str) -> None:
    ids = tokenizer.encode_text(text)
    assert ids == reference.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == reference.decode(ids)


@pytest.mark.model
@given(ids=st.lists(st.integers(0, 49151), max_size=30))
def test_decoding_agrees_on_any_tokens(tokenizer: Tokenizer, reference: Backend, ids: list[int]) -> None:
    plain = [token for token in ids if token not in tokenizer.special_ids]
    assert tokenizer.decode(ids) == tokenizer.decode(plain) == reference.decode(plain)


@pytest.mark.model
@pytest.mark.parametrize("text", SPECIAL_TEXTS)
def test_text_never_becomes_a_special_token(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode_text(text)
    assert tokenizer.special_ids.isdisjoint(ids)
    assert tokenizer.decode(ids) == text


@pytest.mark.model
def test_facts_of_the_default_model(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 49152
    assert tokenizer.special["<|im_end|>"] in tokenizer.eos_ids
    assert tokenizer.special["<|endoftext|>"] in tokenizer.eos_ids
    assert tokenizer.special["<|im_start|>"] not in tokenizer.eos_ids
    assert tokenizer.token_bytes(tokenizer.special["<|im_end|>"]) == b""
    assert tokenizer.adds_bos is False


@pytest.mark.model
def test_the_directory_form_of_a_tokenizer_gives_the_same_tokens(
    tokenizer: Tokenizer, reference: Backend, tmp_path: Path
) -> None:
    reference.save(str(tmp_path / "tokenizer.json"))
    config = {
        "chat_template": tokenizer.chat_template,
        "eos_token": {"content": "<|im_end|>"},
        "bos_token": "<|im_start|>",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    other = Tokenizer.load(tmp_path)
    texts = [*TEXTS, *SPECIAL_TEXTS]
    assert [other.encode_text(text) for text in texts] == [tokenizer.encode_text(text) for text in texts]
    assert (other.special, other.eos_ids, other.bos_id) == (tokenizer.special, tokenizer.eos_ids, tokenizer.bos_id)
    assert (other.vocab_size, other.chat_template) == (tokenizer.vocab_size, tokenizer.chat_template)
    assert all(other.token_bytes(token) == tokenizer.token_bytes(token) for token in range(other.vocab_size))


@pytest.mark.model
def test_the_digest_is_the_same_in_another_process(tokenizer: Tokenizer, default_model: Path) -> None:
    code = f"from kev.tokens.tokenizer import Tokenizer; print(Tokenizer.load({str(default_model)!r}).digest)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == tokenizer.digest


def test_the_digest_covers_what_decides_the_tokens(tmp_path: Path) -> None:
    variants: list[dict[str, object]] = [
        {},
        {"pre": "qwen2"},
        {"merges": ["h e", "Ġ t", "Ġt he"]},
        {"template": "{{ messages[0]['content'] }}"},
        {"eos": 2},
    ]
    digests = [
        Tokenizer.load(write_gguf(tmp_path / f"{index}.gguf", **values)).digest for index, values in enumerate(variants)
    ]
    assert len(set(digests)) == len(variants)
    assert Tokenizer.load(write_gguf(tmp_path / "again.gguf")).digest == digests[0]


def test_a_lone_surrogate_is_refused_by_name(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write_gguf(tmp_path / "t.gguf"))
    with pytest.raises(ValueError, match="text: holds a lone surrogate"):
        tokenizer.encode_text("a\ud800b")


@pytest.mark.parametrize("token", [-1, 263, 10**9])
def test_an_unknown_token_is_refused_with_the_range(tmp_path: Path, token: int) -> None:
    tokenizer = Tokenizer.load(write_gguf(tmp_path / "t.gguf"))
    with pytest.raises(ValueError, match=r"token: .* allowed: 0 to 262"):
        tokenizer.token_bytes(token)


def test_markup_that_a_model_defines_is_out_of_reach_but_its_spaces_are_not(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write_gguf(tmp_path / "t.gguf"))
    assert set(tokenizer.special) == {"<|begin|>", "<|stop|>", "<think>"}
    assert tokenizer.special_ids.isdisjoint(tokenizer.encode_text("<think>the<|stop|>"))
    assert tokenizer.decode([tokenizer.special["<think>"]]) == "<think>"


def test_an_unknown_pre_tokenizer_is_refused_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer.ggml.pre: 'jais' is not supported; allowed: .*smollm"):
        Tokenizer.load(write_gguf(tmp_path / "t.gguf", pre="jais"))


def test_an_unknown_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer.ggml.model is 'bert'; allowed: gpt2 .* and llama"):
        Tokenizer.load(write_gguf(tmp_path / "t.gguf", model="bert"))


@pytest.mark.parametrize("name", sorted(PATTERNS))
@given(text=st.text(max_size=40))
def test_every_pre_tokenizer_keeps_every_byte(name: str, text: str) -> None:
    words = pre_tokenizer(name).pre_tokenize_str(text)
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    assert "".join(word for word, _ in words) == "".join(word for word, _ in whole)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [("smollm", ["1", "2", "3", "4", "5"]), ("qwen2", ["1", "2", "3", "4", "5"]), ("llama-bpe", ["123", "45"])],
)
def test_families_cut_numbers_their_own_way(name: str, numbers: list[str]) -> None:
    assert [word for word, _ in pre_tokenizer(name).pre_tokenize_str("x12345")][1:] == numbers


def test_the_qwen_pattern_is_the_one_transformers_has() -> None:
    theirs = pytest.importorskip("transformers").Qwen2Tokenizer().backend_tokenizer.pre_tokenizer
    for text in TEXTS:
        assert pre_tokenizer("qwen2").pre_tokenize_str(text) == theirs.pre_tokenize_str(text)


def spaced_vocabulary(tmp_path: Path) -> Tokenizer:
    """A small sentencepiece-style vocabulary: "▁the" is built before "he", by its score."""
    pieces = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)]]
    types = [2, 3, 3, *[6] * 256]
    words = ["▁t", "he", "▁the", "▁", "t", "h", "e", "n"]
    scores = [0.0] * len(pieces) + [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0]
    path = write_gguf(
        tmp_path / "s.gguf", model="llama", tokens=pieces + words, types=types + [1] * 8, scores=scores, bos=1, eos=2
    )
    return Tokenizer.load(path)


def test_sentencepiece_vocabularies_merge_by_score_and_spell_the_rest_in_bytes(tmp_path: Path) -> None:
    tokenizer = spaced_vocabulary(tmp_path)
    base = 259
    assert tokenizer.encode_text("the then") == [base + 2, base + 2, base + 7]
    assert tokenizer.encode_text("é") == [base + 3, 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.decode(tokenizer.encode_text("the né")) == " the né"
    assert tokenizer.special_ids.isdisjoint(tokenizer.encode_text("<s></s><0x41>"))
    assert tokenizer.adds_bos
    assert tokenizer.eos_ids == {2}


def test_directories_that_cannot_be_used_say_why(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"has no tokenizer.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{not json")
    with pytest.raises(TokenizerError, match="not valid JSON"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')
    with pytest.raises(TokenizerError, match=r"model.type is 'Unigram'; allowed: BPE"):
        Tokenizer.load(tmp_path)
