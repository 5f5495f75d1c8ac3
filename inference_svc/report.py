"""What passes between a worker's event loop and its model thread. Plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from inference_svc.channels import Job, Kind, Phase
from inference_svc.grammars.port import Grammar
from kev.domain.outcome import ChosenToken, FinishReason
from kev.domain.question import Sampling


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """A question for the core.

    Attributes:
        ticket: Names this run; never used twice in a worker's life.
        deadline: On the monotonic clock, seconds.
        grammar: What its answer may be, at its beginning; used by this run alone.
    """

    ticket: int
    job: Job
    sampling: Sampling
    seed: int
    deadline: float
    grammar: Grammar | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a run's text. ``offset`` counts the characters before it."""

    ticket: int
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class End:
    """The end of a run; its channel is free.

    Attributes:
        text: The whole text, partial unless it was answered.
        reason, detail: As in an outcome, for ``error`` and ``refused``.
        tokens: Tokens of the answer.
        started, ended: Monotonic seconds; ``started`` is None if no forward had it.
        reused: Prompt tokens that were not computed for this run alone.
        first: When its first token came, None if none did.
        overran: Forwards that ended between the wish to end it and its end: the one that was running.
    """

    ticket: int
    finish: FinishReason
    text: str
    tokens: int
    forwards: int
    started: float | None
    ended: float
    reason: str = ""
    detail: str = ""
    reused: int = 0
    first: float | None = None
    overran: int = 0
    logprobs: tuple[ChosenToken, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """One turn of the model thread.

    Attributes:
        forward: Number of the forward; 0 if the turn had none.
        rows, channels: Its size.
        prefill_rows: Rows of prompts; the others are of answers.
        seconds: How long it took, sampling included.
        phases: Runs by phase after it.
        pages_free: Free KV pages after it.
        pages_prefix: KV pages of stored context.
        checks: Integrity checks of the page tables since the last report.
        lookups: Stored context that runs looked for since the last report, by kind and ``hit`` or ``miss``.
        evicted: Stored context dropped for room since the last report, by kind.
    """

    texts: tuple[Text, ...]
    ends: tuple[End, ...]
    forward: int = 0
    rows: int = 0
    channels: int = 0
    seconds: float = 0.0
    phases: Counter[Phase] = field(default_factory=Counter)
    pages_free: int = 0
    prefill_rows: int = 0
    pages_prefix: int = 0
    checks: int = 0
    lookups: Mapping[tuple[Kind, str], int] = field(default_factory=dict)
    evicted: Mapping[Kind, int] = field(default_factory=dict)
