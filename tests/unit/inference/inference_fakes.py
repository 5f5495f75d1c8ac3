"""A tiny backend and tokenizer whose answers depend on every visible token, and a naive way to the same answers."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inference_svc.clock import Clock
from inference_svc.core import Core
from inference_svc.desk import Desk
from inference_svc.memory import Memory, MemoryLimits
from inference_svc.pages import PageAllocator
from inference_svc.report import Report
from inference_svc.rows import PAGE_SIZE, Float32Array, Pack
from inference_svc.sample import Sampler
from inference_svc.schedule import ForwardLimits, Scheduler
from kev.domain.question import Sampling

VOCAB = 48
EOS = 7
EMPTY = -1


def logits_of(context: Sequence[int]) -> Float32Array:
    """The fake model: a function of the whole context."""
    key = int.from_bytes(hashlib.sha256(np.array(context, np.int32).tobytes()).digest()[:8], "little")
    return np.random.Generator(np.random.Philox(key=key)).standard_normal(VOCAB).astype(np.float32)


class FakeTokenizer:
    """Token ``t`` is one letter; ``EOS`` ends an answer."""

    vocab_size = VOCAB
    eos_ids = frozenset({EOS})
    special_ids = frozenset({EOS})
    digest = "fake-tokens"

    def token_bytes(self, token: int) -> bytes:
        if not 0 <= token < VOCAB:
            raise ValueError(f"token {token}")
        return b"" if token == EOS else chr(ord("A") + token).encode()


@dataclass
class FakeBackend:
    """Stores tokens where a model stores K and V; ``poison`` tokens make logits NaN, ``crash`` ones raise."""

    pages: int = 64
    max_context: int = 128
    name: str = "fake"
    variant: str = "fake-1"
    vocab_size: int = VOCAB
    poison: frozenset[int] = frozenset()
    crash: frozenset[int] = frozenset()
    before: Callable[[Pack], None] = lambda pack: None
    packs: list[Pack] = field(default_factory=list)
    rows: int = 0
    threads: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.store = np.full((self.pages, PAGE_SIZE), EMPTY, dtype=np.int32)

    def forward(self, pack: Pack) -> Float32Array:
        self.threads.add(threading.get_ident())
        self.before(pack)
        if self.crash & set(pack.tokens().tolist()):
            raise RuntimeError("crash token")
        self.packs.append(pack)
        self.rows += pack.rows
        for span in pack.spans:
            for index, token in enumerate(span.tokens.tolist()):
                page, offset = divmod(span.position + index, PAGE_SIZE)
                self.store[span.table[page], offset] = token
        found = [self._row(span, count) for span in pack.spans for count in range(span.end - span.wanted, span.end)]
        return np.array(found, dtype=np.float32).reshape(-1, VOCAB)

    def _row(self, span: object, last: int) -> Float32Array:
        pages = self.store[span.table].reshape(-1)  # type: ignore[attr-defined]
        context = pages[: last + 1].tolist()
        assert EMPTY not in context, "a position was read that nobody wrote"
        if self.poison & set(context):
            return np.full(VOCAB, np.nan, np.float32)
        return logits_of(context)

    def scrub(self, pages: Sequence[int]) -> None:
        self.store[list(pages)] = EMPTY

    def copy_page(self, source: int, target: int) -> None:
        self.store[target] = self.store[source]

    def close(self) -> None:
        return None


def naive_tokens(prompt: Sequence[int], max_tokens: int, sampling: Sampling, seed: int, context: int) -> list[int]:
    """The answer's tokens, one question at a time, with no pages at all. ``EOS`` included."""
    tokens = list(prompt)
    sampler = Sampler(sampling, seed)
    while len(tokens) - len(prompt) < max_tokens and len(tokens) < context:
        tokens.append(sampler.pick(logits_of(tokens), len(tokens) - len(prompt)))
        if tokens[-1] == EOS:
            break
    return tokens[len(prompt) :]


def letters(tokens: Sequence[int]) -> str:
    """Tokens as the fake tokenizer shows them."""
    return "".join(chr(ord("A") + token) for token in tokens if token != EOS)


class HandClock(Clock):
    """A clock that stands still until told."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(1_700_000_000_000 + self.now * 1000)


def make_desk(
    backend: Any,
    *,
    channels: int = 8,
    rows: int = 32,
    unified: bool = False,
    share_prefix: bool = True,
    prefixes: int = 2,
    clock: Clock | None = None,
    tokenizer: Any = None,
    **more: Any,
) -> tuple[Desk, Memory]:
    """A desk, over the fake model unless told otherwise."""
    limits = MemoryLimits(backend.max_context, unified, share_prefix, prefixes, **more)
    memory = Memory(PageAllocator(backend.pages), backend.pages, limits)
    scheduler = Scheduler(ForwardLimits(channels, rows), memory)
    return Desk(backend, tokenizer or FakeTokenizer(), memory, scheduler, clock or HandClock()), memory


def make_core(
    backend: FakeBackend, on_report: Callable[[Report], None], window_s: float = 0.0, company_s: float = 0.03
) -> Core:
    """A core over the fake model."""
    clock = Clock()
    desk, _ = make_desk(backend, clock=clock)
    return Core(desk, on_report, clock, window_s, company_s)
