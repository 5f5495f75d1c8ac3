"""All claims and controls on one loaded model, in order, each with its verdict and figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random

from inference_svc.backends.port import Backend
from inference_svc.channels import Kind, Part
from inference_svc.memory import MemoryLimits
from inference_svc.rows import pages_for
from inference_svc.verify import claims, controls
from inference_svc.verify.cases import Case, answered
from inference_svc.verify.claims import Subject
from inference_svc.verify.damage import Damage, Plantable, row_spots, spots
from inference_svc.verify.faults import OneScale
from inference_svc.verify.lanes import Prompt, Solo
from inference_svc.verify.prefixes import LENGTHS, prefix_hit
from inference_svc.verify.report import Check
from inference_svc.verify.served import Layout, as_served, serve
from kev.tokens.tokenizer import Tokenizer

CLAIM = "claim"
CONTROL = "control"
FEWEST = 4
"""Questions that the claims need."""
PREFIX_TOKENS = max(LENGTHS)
_SEED = 20240
_CONTROL_TOKENS = 24
_TAIL_TOKENS = 12
"""Tokens of a prompt after the prefix."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is tried.

    Attributes:
        questions, steps: Of the main claims; tokens of an answer.
        prefix_questions, prefix_steps: For every prefix length.
        served_questions, served_steps: Through the worker's own scheduler.
        rounds: Random groupings of neighbours.
        threads: Numbers of threads.
        broken: Whether to try kernels with a fault built in, too.
    """

    questions: int
    steps: int
    prefix_questions: int
    prefix_steps: int
    served_questions: int
    served_steps: int
    rounds: int
    threads: tuple[int, ...]
    broken: bool

    def pages(self, longest: int) -> int:
        """KV pages that are needed when the longest prompt has so many tokens."""
        prefixed = pages_for(PREFIX_TOKENS) + self.prefix_questions * pages_for(
            PREFIX_TOKENS + _TAIL_TOKENS + self.prefix_steps
        )
        return max(self.questions * (pages_for(longest + self.steps) + 1), prefixed) + 16

    def positions(self, longest: int) -> int:
        """Positions that one channel needs at most."""
        return max(longest + self.steps, PREFIX_TOKENS + _TAIL_TOKENS + self.prefix_steps)


SHORT = Size(8, 8, 2, 3, 6, 6, 2, (1, 3), broken=False)
LONG = Size(64, 64, 8, 16, 24, 32, 3, (1, 2, 3, 5), broken=True)


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict.

    Attributes:
        kind: ``claim``, or ``control``: a planted fault, which passes when it is seen.
    """

    kind: str
    check: Check
    seconds: float


@dataclass(frozen=True, slots=True)
class Proof:
    """What is tried, and how much.

    Attributes:
        backend: Its KV store must not be in use, and have ``size.pages`` pages.
        prompts: Token ids, at most ``size.questions`` prompts, at least ``FEWEST``.
        prefix: ``PREFIX_TOKENS`` token ids that the prefix claims' prompts begin with.
        run_with: Calls a function with a backend that has another number of threads.
        broken: Makes a backend whose sums depend on other rows, or None where that cannot be had. Only where
            ``size.broken``: kernels must be compiled for it.
        say: Told what is being tried.
    """

    backend: Backend
    tokenizer: Tokenizer
    prompts: Sequence[Sequence[int]]
    prefix: Sequence[int]
    size: Size
    run_with: claims.RunWith
    broken: Callable[[], Backend | None] = lambda: None
    say: Callable[[str], None] = lambda text: None

    def findings(self) -> Iterator[Finding]:
        """Tries everything, one verdict after the other; the store is scrubbed at the end."""
        self.say(f"{len(self.prompts)} questions alone, {self.size.steps} tokens each")
        subject = Subject(self.backend, answered(self.backend, self.prompts, self.size.steps), Random(_SEED))
        for kind, part in (
            (CLAIM, self._packs(subject)),
            (CLAIM, self._prefixes()),
            (CLAIM, self._served(subject.cases)),
            (CLAIM, self._damage(subject.cases)),
            (CONTROL, self._controls(subject)),
        ):
            began = time.monotonic()
            for check in part:
                yield Finding(kind, check, time.monotonic() - began)
                began = time.monotonic()
        self.backend.scrub(range(self.backend.pages))

    def _packs(self, subject: Subject) -> Iterator[Check]:
        self.say("packed, and among neighbours")
        yield from claims.packed(subject)
        yield claims.neighbours(subject, self.size.rounds)
        self.say("channels, chunks, pages, threads")
        yield claims.channels(subject)
        yield claims.chunks(subject)
        yield claims.split_pages(subject)
        yield claims.unified_pages(subject)
        yield claims.threads(subject, self.size.threads, self.run_with)

    def _prefix_cases(self) -> list[Case]:
        tails = (tuple(tokens)[-_TAIL_TOKENS:] for tokens in self.prompts)
        prompts = [(*self.prefix, *tail) for tail in islice(tails, self.size.prefix_questions)]
        return answered(self.backend, prompts, self.size.prefix_steps)

    def _prefixes(self) -> Iterator[Check]:
        self.say("shared prefixes")
        cases = self._prefix_cases()
        for length in LENGTHS:
            yield prefix_hit(self.backend, cases, length)
        alone = Layout("alone", self._limits(cases), rows=1024, channels=1)
        expected = [serve(self.backend, self.tokenizer, [case], alone)[0] for case in cases]
        for layout in self._levels(cases):
            yield as_served(self.backend, self.tokenizer, cases, expected, layout)

    def _levels(self, cases: Sequence[Case]) -> Iterator[Layout]:
        """What each level shares, in each layout; every part ends where a page does not."""
        count, usual = len(cases), self._limits(cases, share=True)
        system = PREFIX_TOKENS // 3
        batch = Part(Kind.BATCH, PREFIX_TOKENS)
        chain = (Part(Kind.POOL, 2 * system + 1), batch)
        yield Layout("strict, a shared system prompt", usual, 64, count, PREFIX_TOKENS)
        yield Layout("shared, a prefix of the batch", usual, 64, count, system, (batch,))
        yield Layout("loose, system prompt, context pool and prefix of the batch", usual, 64, count, system, chain)
        yield Layout("loose, the same in copies", replace(usual, copies=True), 64, count, system, chain)
        yield Layout("loose, a conversation that goes on", usual, 64, count, system, chain, again=True)

    def _served(self, answered_cases: Sequence[Case]) -> Iterator[Check]:
        self.say("through the worker's scheduler")
        cases = [case.first(self.size.served_steps) for case in answered_cases[: self.size.served_questions]]
        usual, count = self._limits(cases), len(cases)
        expected = [serve(self.backend, self.tokenizer, [case], Layout("alone", usual, 1024, 1))[0] for case in cases]
        for layout in (
            Layout("split", usual, rows=256, channels=count),
            Layout("unified", self._limits(cases, unified=True), rows=100, channels=count),
            Layout("small chunks, taking turns", usual, rows=20, channels=max(2, count // 2)),
        ):
            yield as_served(self.backend, self.tokenizer, cases, expected, layout)

    def _limits(self, cases: Sequence[Case], *, unified: bool = False, share: bool = False) -> MemoryLimits:
        longest = max(len(case.prompt.prompt) + len(case.marks) for case in cases)
        return MemoryLimits(max_context=longest, unified=unified, share_prefix=share)

    def _damage(self, cases: Sequence[Case]) -> Iterator[Check]:
        if not isinstance(self.backend, Plantable):
            return
        self.say("planted NaNs")
        yield claims.leftovers(Subject(self.backend, cases[:FEWEST], Random(_SEED)), self.backend.fill)
        damage = Damage(self.backend, cases[:FEWEST])
        places = list(spots(self.backend, damage.length))
        yield damage.in_kv("k", places)
        yield damage.in_kv("v", places)
        yield damage.in_activation(list(row_spots(self.backend)))

    def _controls(self, subject: Subject) -> Iterator[Check]:
        self.say("planted faults")
        prompts = [Prompt(case.prompt.prompt[:_CONTROL_TOKENS]) for case in subject.cases[:3]]
        solo = Solo(self.backend)
        yield _seen("a wrong page", controls.page_shared(self.backend, prompts, solo=solo))
        yield _seen("positions not restarted", controls.positions_not_restarted(self.backend, prompts, solo=solo))
        yield _seen("mask removed", controls.mask_removed(self.backend, prompts, solo=solo))
        few = [case.first(4) for case in subject.cases[:FEWEST]]
        yield _seen("a scale over the pack", _packed_on(OneScale(self.backend), few))
        backend = self.broken() if self.size.broken else None
        if backend is not None:
            try:
                yield _seen("kernels whose sums depend on other rows", _packed_on(backend, few))
            finally:
                backend.close()


def _packed_on(backend: Backend, cases: Sequence[Case]) -> Check:
    """Packed against alone, both on this backend."""
    fresh = answered(backend, [case.prompt.prompt for case in cases], len(cases[0].marks))
    return claims.packed(Subject(backend, fresh, Random(_SEED)))[0]


def _seen(fault: str, control: Check) -> Check:
    """A control's verdict: it passes when the fault was seen."""
    verdict = "seen" if not control.passed else "not seen, so the test proves nothing"
    return Check(f"planted fault: {fault}", not control.passed, f"{verdict}: {control.detail}")
