"""What the native backend's tests share: backends loaded once, and the real workload."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from inference_svc.backends.native import NativeBackend, NativeUnavailable, build, packed
from inference_svc.backends.native import backend as backend_module
from inference_svc.backends.native.variants import Variant
from inference_svc.rows import Float32Array, Int32Array, Pack, Span, pages_for

PRECISIONS = ("fp32", "bf16", "int8")

SYSTEM = (
    "You are Kev, a careful assistant that answers many separate questions at once. Answer only the question "
    "that you are given, in plain English, with short and complete sentences."
)
QUESTIONS = (
    "Write a short poem about the sea.",
    "What is the difference between weather and climate?",
    "Why is the sky blue in the day and red at sunset? Please keep the answer short.",
    "How does a refrigerator keep food cold, and why does it need a compressor?",
    "What is 17 plus 26? Please keep the answer short.",
    "How do I sort a list of numbers in Python?",
    "Name three large rivers.",
    "Why do cats purr?",
)


def load(path: Path, precision: str, **settings: Any) -> NativeBackend:
    """Loads the native backend, or skips the test where it cannot be built: not where building it fails."""
    try:
        return NativeBackend.load(path, precision=precision, pages=settings.pop("pages", 200), **settings)
    except NativeUnavailable as reason:
        if " failed: " in str(reason):
            raise
        pytest.skip(str(reason))


def load_with_defects(path: Path, precision: str, patch: pytest.MonkeyPatch) -> NativeBackend:
    """The same from a library with faults built in: sums that depend on other rows."""

    def library(variant: Variant) -> Path:
        return build.library(variant, ("-DKEV_DEFECTS",))

    patch.setattr(backend_module, "library", library)
    return load(path, precision, threads=1)


def load_written_out(path: Path, patch: pytest.MonkeyPatch, **settings: Any) -> NativeBackend:
    """float32 with all numbers written out, even where the file has codes for them; leaves nothing in the cache."""

    def unwritable(_: Path) -> NoReturn:
        raise OSError("not kept")

    with patch.context() as here:
        here.setattr(packed, "FORMAT", "written out")
        here.setattr(packed, "has_codes", lambda *_: False)
        here.setattr(packed, "locked", unwritable)
        backend = load(path, "fp32", **settings)
    assert backend.packed.form == "fp32"
    return backend


@cache
def prompts(path: Path, count: int) -> tuple[Int32Array, ...]:
    """Token ids of the first questions, as the model's chat template writes them."""
    from kev.tokens.chat import ChatFormat
    from kev.tokens.tokenizer import Tokenizer

    chat = ChatFormat(Tokenizer.load(path), SYSTEM)
    rendered = (chat.render([{"role": "user", "content": text}]).tokens for text in QUESTIONS[:count])
    return tuple(np.asarray(tokens, np.int32) for tokens in rendered)


def greedy(backend: NativeBackend, texts: tuple[Int32Array, ...], steps: int) -> list[Int32Array]:
    """Answers of ``steps`` tokens to all prompts, packed: prompts in one forward, then a token each."""
    size = max(pages_for(len(text) + steps) for text in texts)
    tables = [np.arange(n * size, (n + 1) * size, dtype=np.int32) for n in range(len(texts))]
    done = [list(text) for text in texts]
    fresh = list(texts)
    for _ in range(steps):
        spans = [
            Span(n, new, len(whole) - len(new), table)
            for n, (new, whole, table) in enumerate(zip(fresh, done, tables, strict=True))
        ]
        chosen = backend.forward(Pack.of(spans)).argmax(axis=1).astype(np.int32)
        fresh = [chosen[n : n + 1] for n in range(len(texts))]
        for whole, token in zip(done, chosen, strict=True):
            whole.append(int(token))
    return [np.asarray(whole, np.int32) for whole in done]


def score(backend: NativeBackend, tokens: Int32Array, wanted: int) -> Float32Array:
    """Logits of the last ``wanted`` rows of one text, alone."""
    table = np.arange(pages_for(len(tokens)), dtype=np.int32)
    return backend.forward(Pack.of([Span(0, tokens, 0, table, wanted)])).copy()


Load = Callable[[str, str], NativeBackend]
