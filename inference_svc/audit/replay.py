"""Computes logged forwards again, each channel on its own, and compares the logits bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from inference_svc.audit.check import Verdict
from inference_svc.audit.layout import Part
from inference_svc.audit.record import Record, Source, Texts, logits_digest
from inference_svc.backends.port import Backend
from inference_svc.pages import OutOfPages, PageAllocator
from inference_svc.rows import Float32Array, Int32Array, Pack, Span, pages_for

CHUNK = 256
MOST_RUNS = 4096
Key = tuple[Source, int, int]


class OtherModel(ValueError):
    """The log is of another model or variant than the loaded one; the text names both."""


@dataclass(slots=True)
class _Run:
    """A run as far as it is known: its tokens, and how many of them are in the store."""

    tokens: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    done: int = 0


class Replay:
    """Call it with one record after the other, in the order of the file.

    A channel's context stays in the KV store from one line to the next; where
    that is full, the run that was used least recently is computed afresh.

    Args:
        backend: Its whole KV store is used.
        model: Digest of the model that it holds.
    """

    def __init__(self, backend: Backend, model: str) -> None:
        self._backend = backend
        self._model = model
        self._allocator = PageAllocator(backend.pages)
        self._runs: dict[Key, _Run] = {}

    def __call__(self, record: Record, verdict: Verdict) -> None:
        """Notes in the verdict how many logit rows are equal, different, or cannot be computed.

        Raises:
            OtherModel: the record is of another model.
        """
        self._same_model(record)
        for part, texts in zip(record.layout, record.texts, strict=True):
            run = self._known((record.source, part.channel, part.run), part, texts)
            if texts.logits is None or run is None:
                verdict.logits_skipped += part.wanted
            elif part.wanted:
                found = self._compute(run, part)
                equal = sum(one == other for one, other in zip(found, texts.logits, strict=True))
                verdict.logits_equal += equal
                verdict.logits_different += part.wanted - equal

    def _same_model(self, record: Record) -> None:
        logged, here = (record.source.model, record.source.variant), (self._model, self._backend.variant)
        if logged != here:
            raise OtherModel(
                f"logged with model {logged[0][:12]} on {logged[1]}; loaded is {here[0][:12]} on {here[1]}, "
                "whose bits differ"
            )

    def _known(self, key: Key, part: Part, texts: Texts) -> _Run | None:
        """The run with its tokens up to the end of this part; None where the file does not hold them."""
        if texts.tokens is None:
            return None
        run = self._runs.pop(key, None) or _Run()
        if texts.context is not None and run.tokens != list(texts.context):
            self._allocator.release(id(run))
            run = _Run(list(texts.context))
        if len(run.tokens) != part.position:
            self._allocator.release(id(run))
            return None
        run.tokens.extend(texts.tokens)
        self._runs[key] = run  # as the one used last
        if len(self._runs) > MOST_RUNS:
            self._allocator.release(id(self._runs.pop(next(iter(self._runs)))))
        return run

    def _compute(self, run: _Run, part: Part) -> list[str]:
        self._make_room(run)
        table = np.array(run.pages, np.int32)
        first = part.end - part.wanted
        while run.done < first:
            self._feed(run, table, min(first, run.done + CHUNK), 0)
        return [logits_digest(row) for row in self._feed(run, table, part.end, part.wanted)]

    def _feed(self, run: _Run, table: Int32Array, end: int, wanted: int) -> Float32Array:
        tokens = np.array(run.tokens[run.done : end], np.int32)
        logits = self._backend.forward(Pack.of([Span(0, tokens, run.done, table, wanted)]))
        run.done = end
        return logits

    def _make_room(self, run: _Run) -> None:
        """Pages for all its tokens. Raises OutOfPages where the store is too small for it alone."""
        need = pages_for(len(run.tokens)) - len(run.pages)
        while need > self._allocator.available:
            other = next((one for one in self._runs.values() if one is not run and one.pages), None)
            if other is None:
                raise OutOfPages(f"a run of {len(run.tokens)} positions does not fit {self._allocator.pages} KV pages")
            self._allocator.release(id(other))
            other.pages, other.done = [], 0
        run.pages += self._allocator.allocate(id(run), max(need, 0))
