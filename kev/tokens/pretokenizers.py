"""Pre-tokenizers of byte-level BPE vocabularies, by the name a GGUF file gives them.

A pre-tokenizer cuts text into words before BPE merges inside each word. The wrong one gives other token ids than
the model was trained with, without any error; so a name that is not in the table is refused, never guessed.
Each pattern is the published one of its model family.
"""

from tokenizers import Regex, normalizers, pre_tokenizers

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS_THEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_DIGIT = r"\p{N}"
_QWEN = [_WORDS_THEN + r"\p{N}" + _REST]
_LLAMA3 = [_WORDS_THEN + r"\p{N}{1,3}" + _REST]

PATTERNS: dict[str, list[str]] = {
    "gpt-2": [_GPT2],
    "gpt2": [_GPT2],
    "smollm": [_DIGIT, _GPT2],
    "starcoder": [_DIGIT, _GPT2],
    "qwen2": _QWEN,
    "deepseek-r1-qwen": _QWEN,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "smaug-bpe": _LLAMA3,
    "tekken": [_TEKKEN],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
}

_NFC = frozenset({"qwen2", "deepseek-r1-qwen"})
_WHOLE_WORDS = frozenset({"llama-bpe", "llama3", "llama-v3", "smaug-bpe", "tekken"})


def pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    """The pre-tokenizer called `name` in `tokenizer.ggml.pre`.

    Raises:
        ValueError: the name is unknown; the text lists those that are allowed.
    """
    if name not in PATTERNS:
        raise ValueError(f"tokenizer.ggml.pre: {name!r} is not supported; allowed: {', '.join(sorted(PATTERNS))}")
    steps: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PATTERNS[name]
    ]
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def normalizer(name: str) -> normalizers.Normalizer | None:
    """The text form the family was trained on, where it has one."""
    return normalizers.NFC() if name in _NFC else None


def takes_whole_words(name: str) -> bool:
    """Whether a word that is a piece of the vocabulary is taken as it is, before any merge."""
    return name in _WHOLE_WORDS
