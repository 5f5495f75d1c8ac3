"""Static word vectors: one row per token, read from the files of the ``wordllama`` wheel.

The wheel is only located, never imported: its code can reach the network, and the two files are all that is needed.
Source of the file layout: the safetensors format (header length, JSON header, raw tensors).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from kev.config.source import ConfigError

Floats = npt.NDArray[np.float32]
PACKAGE = "wordllama"
INSTALL = "pip install wordllama"
_WEIGHTS, _TOKENIZER = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"
_TENSOR = "embedding.weight"
_WEIGHT = 0.25
"""Power of a vector's length by which its token counts in a text's vector; measured: 0.47 of equal intents share a
bucket of a fitted codebook, 0.44 without."""


class NoVectors(ConfigError):
    """The word vectors are not installed, or not those that are known; the text says what to do."""


class Table:
    """Token vectors, float32 ``[tokens, dimensions]``, and their tokenizer. Immutable.

    Attributes:
        lengths: Of the vectors, float32 ``[tokens]``: how much each token tells.
        digest: Of the vectors: a codebook belongs to one table.
    """

    def __init__(self, vectors: Floats, tokenizer: Tokenizer) -> None:
        self.vectors = vectors
        self.lengths: Floats = np.linalg.norm(vectors, axis=1).astype(np.float32)
        self._weights = self.lengths**_WEIGHT
        self._tokenizer = tokenizer
        self.digest = hashlib.sha256(np.ascontiguousarray(vectors[::97], dtype="<f4").tobytes()).hexdigest()[:16]

    @classmethod
    def load(cls) -> Table:
        """Reads the installed wheel's files.

        Raises:
            NoVectors: they are not there.
        """
        spec = find_spec(PACKAGE)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            weights, tokenizer = Path(folder) / _WEIGHTS, Path(folder) / _TOKENIZER
            if weights.is_file() and tokenizer.is_file():
                return cls(_read(weights), Tokenizer.from_file(str(tokenizer)))
        raise NoVectors(
            f"router.strategy: semantic_hash needs the word vectors of {PACKAGE}; install them with: {INSTALL}"
        )

    def tokens(self, text: str) -> list[int]:
        """Token ids of a text, without special tokens."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def embed(self, text: str) -> Floats:
        """The text's vector ``[dimensions]``: the mean of its tokens' vectors, the telling ones counted a little
        more; zeros for an empty text."""
        tokens = self.tokens(text)
        if not tokens:
            return np.zeros(self.vectors.shape[1], dtype=np.float32)
        weights = self._weights[tokens]
        return np.asarray(weights @ self.vectors[tokens] / weights.sum(), dtype=np.float32)

    def embed_all(self, texts: Sequence[str]) -> Floats:
        """Vectors of many texts ``[texts, dimensions]``."""
        return np.stack([self.embed(text) for text in texts])


def _read(path: Path) -> Floats:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    about = header.get(_TENSOR, {})
    if about.get("dtype") != "F16":
        raise NoVectors(f"router.strategy: {path.name} must hold {_TENSOR} as F16; install the package {PACKAGE} anew")
    begin, end = about["data_offsets"]
    raw = np.frombuffer(data[8 + length + begin : 8 + length + end], dtype="<f2")
    return raw.reshape(about["shape"]).astype(np.float32)
