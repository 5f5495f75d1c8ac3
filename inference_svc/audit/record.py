"""One logged forward, and its line of JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from inference_svc.audit.layout import Cells, Layout, Part, count_cells, digest_of, offsets
from inference_svc.rows import Float32Array

VERSION = 1
_NUMBERS = ("channel", "run", "position", "rows", "wanted")


class NotARecord(ValueError):
    """A line is not a logged forward; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Source:
    """Who computed: the same in all records of a worker's life.

    Attributes:
        life: When the worker was started, milliseconds since 1970: a restart counts runs and forwards anew.
    """

    worker: str
    model: str
    backend: str
    variant: str
    life: int = 0


@dataclass(frozen=True, slots=True)
class Texts:
    """What else a part may say.

    Attributes:
        tokens: Of its rows; None where tokens are not logged.
        context: Tokens before them; None where the line before in this run leads up to them.
        logits: Digest of each logit row; None where they are not logged.
    """

    tokens: tuple[int, ...] | None = None
    context: tuple[int, ...] | None = None
    logits: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One logged forward.

    Attributes:
        source: Who computed it.
        forward: Number of the forward in the worker's life, from 1.
        time_ms: Wall clock, milliseconds since 1970.
        layout, texts: One entry per channel.
        cells: As they were counted when it was logged.
        digest: Of the layout, from then.
    """

    source: Source
    forward: int
    time_ms: int
    layout: Layout
    texts: Sequence[Texts]
    cells: Cells
    digest: str

    @classmethod
    def of(cls, source: Source, forward: int, time_ms: int, layout: Layout, texts: Sequence[Texts]) -> Record:
        """A record with its cells counted and its digest taken."""
        return cls(source, forward, time_ms, layout, texts, count_cells(layout), digest_of(layout))

    def line(self) -> str:
        """The JSON, with a line end."""
        channels = [
            _channel(part, first, texts)
            for part, first, texts in zip(self.layout, offsets(self.layout), self.texts, strict=True)
        ]
        whole = {
            "audit": VERSION,
            **asdict(self.source),
            "forward": self.forward,
            "time_ms": self.time_ms,
            "rows": sum(part.count for part in self.layout),
            "cells": asdict(self.cells),
            "layout": self.digest,
            "channels": channels,
        }
        return json.dumps(whole, separators=(",", ":")) + "\n"


def _channel(part: Part, first: int, texts: Texts) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "channel": part.channel,
        "run": part.run,
        "offset": first,
        "position": part.position,
        "rows": part.count,
        "wanted": part.wanted,
        "pages": part.pages,
    }
    facts |= {name: sorted(pages) for name in ("granted", "foreign") if (pages := getattr(part, name))}
    return facts | {name: value for name, value in asdict(texts).items() if value is not None}


def record_of(line: str) -> Record:
    """Reads a line back.

    Raises:
        NotARecord: it is not one.
    """
    try:
        whole = json.loads(line)
    except ValueError:
        raise NotARecord("not JSON, or cut off") from None
    if not isinstance(whole, dict) or whole.get("audit") != VERSION:
        raise NotARecord(f"not an audit record of version {VERSION}")
    try:
        return _record(whole)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise NotARecord(what) from None


def _record(whole: Mapping[str, Any]) -> Record:
    layout = tuple(_part(facts) for facts in whole["channels"])
    if [facts["offset"] for facts in whole["channels"]] != offsets(layout):
        raise ValueError("offsets do not follow from the rows")
    return Record(
        _source(whole),
        int(whole["forward"]),
        int(whole["time_ms"]),
        layout,
        tuple(_texts(facts) for facts in whole["channels"]),
        Cells(**{name: int(whole["cells"][name]) for name in ("own", "granted", "cross")}),
        str(whole["layout"]),
    )


def _source(whole: Mapping[str, Any]) -> Source:
    worker, model, backend, variant = (str(whole[name]) for name in ("worker", "model", "backend", "variant"))
    return Source(worker, model, backend, variant, int(whole["life"]))


def _part(facts: Mapping[str, Any]) -> Part:
    channel, run, position, rows, wanted = (int(facts[name]) for name in _NUMBERS)
    granted, foreign = (frozenset(map(int, facts.get(name, ()))) for name in ("granted", "foreign"))
    return Part(channel, run, position, rows, wanted, tuple(map(int, facts["pages"])), granted, foreign)


def _texts(facts: Mapping[str, Any]) -> Texts:
    tokens, context, logits = (facts.get(name) for name in ("tokens", "context", "logits"))
    found = Texts(
        None if tokens is None else tuple(map(int, tokens)),
        None if context is None else tuple(map(int, context)),
        None if logits is None else tuple(map(str, logits)),
    )
    for name, value, length in (
        ("tokens", found.tokens, facts["rows"]),
        ("context", found.context, facts["position"]),
        ("logits", found.logits, facts["wanted"]),
    ):
        if value is not None and len(value) != length:
            raise ValueError(f"channel {facts['channel']}: {len(value)} {name}, not {length}")
    return found


def logits_digest(row: Float32Array) -> str:
    """Digest of one logit row's bits: 32 hex digits."""
    return hashlib.blake2b(np.ascontiguousarray(row).data, digest_size=16).hexdigest()
