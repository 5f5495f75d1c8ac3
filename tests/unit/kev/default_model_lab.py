"""An engine over the real default model that counts: rows, pages, stored context; and texts of any number of tokens."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from inference_svc.backends.native.errors import NativeUnavailable
from inference_svc.backends.native.variants import choose
from inference_svc.backends.port import Backend
from inference_svc.loading import LoadedModel, load_model
from inference_svc.rows import Float32Array, Pack
from kev.app.engine import Engine
from kev.config.load import load_settings
from kev.domain.result import SlotResult
from kev.tokens.chat import ChatFormat
from kev.tokens.tokenizer import Tokenizer

COLOURS = ("red", "blue", "green", "white", "black", "yellow", "brown", "grey")
WAIT_S = 2400.0


def town(tokenizer: Tokenizer, tokens: int) -> str:
    """A text about houses that is so many tokens long as a context, its markup counted."""
    chat, text, number = ChatFormat(tokenizer), "", 10
    while len(chat.context(longer := f"{text}House {number} has a {COLOURS[number % 8]} door. ")) <= tokens:
        text, number = longer, number + 1
    while len(chat.context(text)) < tokens:
        text += "So it is. " if tokens - len(chat.context(text)) > 4 else " so"
    assert len(chat.context(text)) == tokens
    return text


def door_questions(count: int) -> list[str]:
    """Questions about the houses, all of them with the same number of tokens."""
    return [f"What colour is the door of house {10 + number}?" for number in range(count)]


class Gated:
    """The backend behind a gate: closed, it holds every forward back."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.gate = threading.Event()
        self.gate.set()

    def forward(self, pack: Pack) -> Float32Array:
        assert self.gate.wait(60)
        return self._backend.forward(pack)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


class Lab:
    """An engine, asked batch by batch.

    Attributes:
        counted: By the worker's metrics, during the last batch: ``prefill`` rows, ``decode`` rows, and lookups and
            evictions as ``batch hit``, ``pool miss``, ``conversation evicted``.
        most_pages: Most KV pages that were held during the last batch, stored context included.
    """

    def __init__(self, engine: Engine, model: LoadedModel, gated: Gated) -> None:
        self.engine, self.tokenizer, self.pages = engine, model.tokenizer, model.backend.pages
        self.counted: Counter[str] = Counter()
        self.most_pages = 0
        self._worker = engine._tiers.worker
        self._gated = gated
        self._to_come = 0
        self._turn, self._join = self._worker._metrics.turn, self._worker.core.join
        self._worker._metrics.turn = self._on_turn  # type: ignore[method-assign]
        self._worker.core.join = self._on_join  # type: ignore[method-assign]

    def ask(self, queries: list[Any], engine: Engine | None = None, **options: Any) -> list[SlotResult]:
        """All questions are in their channels, as far as there are some, before the first forward ends."""
        engine, before = engine or self.engine, self._counts()
        self.most_pages = 0
        self._to_come = min(len(queries), self.engine.settings.router.channel_pool_size)
        self._gated.gate.clear()
        results = engine.wait(engine.submit(queries, logprobs=2, timeout_ms=600_000, **options), timeout=WAIT_S)
        assert [result.status for result in results] == ["answered"] * len(queries), results
        self.counted = self._counts() - before
        return results

    def stored_pages(self) -> int:
        """Pages of stored context now."""
        return int(self._value("kev_inference_kv_region_pages", region="prefix"))

    def _on_turn(self, report: Any) -> None:
        self.most_pages = max(self.most_pages, self.pages - report.pages_free)
        self._turn(report)

    def _on_join(self, order: Any) -> None:
        self._join(order)
        self._to_come -= 1
        if self._to_come <= 0:
            self._gated.gate.set()

    def _counts(self) -> Counter[str]:
        found = {kind: self._value("kev_inference_rows_total", kind=kind) for kind in ("prefill", "decode")}
        for kind in ("system", "pool", "batch", "conversation"):
            found[f"{kind} evicted"] = self._value("kev_inference_context_evictions_total", kind=kind)
            for result in ("hit", "miss"):
                value = self._value("kev_inference_context_lookups_total", kind=kind, result=result)
                found[f"{kind} {result}"] = value
        return Counter({name: int(value) for name, value in found.items()})

    def _value(self, name: str, **labels: str) -> float:
        return self._worker._metrics.registry.get_sample_value(name, labels) or 0.0


@contextmanager
def lab(**flags: Any) -> Iterator[Lab]:
    """An engine of the default model on the native backend, with no system prompt, at the level ``loose``."""
    try:
        choose()
    except NativeUnavailable as reason:
        pytest.skip(str(reason))
    common = {"isolation_level": "loose", "core_backend": "native", "inference_worker_id": "lab"}
    settings = load_settings(flags={**common, **flags}, environment={})
    model = load_model(settings)
    gated = Gated(model.backend)
    behind = LoadedModel(gated, model.tokenizer, model.path, model.digest)
    try:
        with Engine(settings, model=behind) as engine:
            yield Lab(engine, model, gated)
    finally:
        model.backend.close()


def said(results: list[SlotResult]) -> list[Any]:
    """What must be the same to the last bit: the texts, and the log probabilities of every token."""
    return [(result.text, result.logprobs) for result in results]
