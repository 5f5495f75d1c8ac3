"""An engine over a fake model: the real tokenizer, answers that depend on every visible token, forwards on command."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inference_svc.loading import LoadedModel
from inference_svc.rows import PAGE_SIZE, Float32Array, Pack
from kev.config.load import load_settings
from kev.config.settings import Settings
from kev.tokens.tokenizer import Tokenizer

NOBODY = -1
SLEEPY = "sleepy"
"""A question with this word ends only by its limits: no answer token is the last."""


class FakeModel:
    """Stores tokens where a model stores K and V. ``gate`` closed holds every forward back."""

    name, variant, max_context, pages = "fake", "fake-1", 4096, 2048

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.vocab_size = tokenizer.vocab_size
        self.gate = threading.Event()
        self.gate.set()
        self.closed = False
        self.packs: list[int] = []
        self._end = min(tokenizer.eos_ids)
        self._words = [token for token in range(1000, 1400) if tokenizer.token_bytes(token).isalpha()]
        self._sleepy = tokenizer.encode_text(f" {SLEEPY}", at_start=False)[0]
        self._store = np.full((self.pages, PAGE_SIZE), NOBODY, dtype=np.int64)

    def forward(self, pack: Pack) -> Float32Array:
        assert self.gate.wait(30)
        self.packs.append(len(pack.spans))
        for span in pack.spans:
            for index, token in enumerate(span.tokens.tolist()):
                page, offset = divmod(span.position + index, PAGE_SIZE)
                self._store[span.table[page], offset] = token
        rows = [self._row(span.table, last) for span in pack.spans for last in range(span.end - span.wanted, span.end)]
        return np.array(rows, dtype=np.float32).reshape(-1, self.vocab_size)

    def _row(self, table: Any, last: int) -> Float32Array:
        context = self._store[table].reshape(-1)[: last + 1]
        draw = int.from_bytes(hashlib.sha256(context.tobytes()).digest()[:8], "little")
        ends = draw % 12 == 0 and self._sleepy not in context
        logits = np.full(self.vocab_size, float(draw % 1000), dtype=np.float32)
        logits[self._end if ends else self._words[draw % len(self._words)]] += 10
        return logits

    def scrub(self, pages: Sequence[int]) -> None:
        self._store[list(pages)] = NOBODY

    def copy_page(self, source: int, target: int) -> None:
        self._store[target] = self._store[source]

    def close(self) -> None:
        self.closed = True


def fake_model(path: Path) -> LoadedModel:
    """The default model's tokenizer with fake weights."""
    tokenizer = Tokenizer.load(path)
    return LoadedModel(FakeModel(tokenizer), tokenizer, str(path), "fake-digest")


def fake_settings(**flags: Any) -> Settings:
    """Few channels and short texts."""
    few = {"router_channel_pool_size": 8, "core_max_context": 256, "inference_worker_id": "lab"}
    return load_settings(flags={**few, **flags}, environment={})
