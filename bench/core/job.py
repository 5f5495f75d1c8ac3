"""One whole job on a bare backend: the prefix once, the prompts in packs, then a token per question and step."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from bench.core.workload import Workload
from inference_svc.backends.port import Backend
from inference_svc.rows import PAGE_SIZE, Int32Array, Pack, Span, pages_for


@dataclass(slots=True)
class JobResult:
    """What a job took, in seconds from its start.

    Attributes:
        answers: New tokens, ``[questions, steps]``.
        total: The whole job.
        prefill: Prefix and prompts.
        first_tokens: When each question had its first token.
        steps: Duration of each decoding forward.
        packs: What every forward computed.
    """

    answers: Int32Array
    total: float = 0.0
    prefill: float = 0.0
    first_tokens: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    packs: list[Pack] = field(default_factory=list)


class Job:
    """Page tables and progress of one run of a workload."""

    def __init__(self, backend: Backend, work: Workload, row_budget: int = 256) -> None:
        self._backend, self._work, self._budget = backend, work, row_budget
        shared = len(work.prefix) // PAGE_SIZE
        own = max(pages_for(len(prompt) + work.steps) for prompt in work.prompts) - shared
        first = np.arange(shared, dtype=np.int32)
        starts = [shared + n * own for n in range(len(work.prompts))]
        self._tables = [np.concatenate([first, np.arange(s, s + own, dtype=np.int32)]) for s in starts]
        self._shared = shared * PAGE_SIZE
        self._result = JobResult(np.zeros((len(work.prompts), work.steps), np.int32))

    @staticmethod
    def pages(work: Workload) -> int:
        """Pages that a run needs."""
        shared = len(work.prefix) // PAGE_SIZE
        own = max(pages_for(len(prompt) + work.steps) for prompt in work.prompts) - shared
        return shared + own * len(work.prompts)

    def run(self) -> JobResult:
        """Runs the job, greedy; end-of-sequence is a token like any other."""
        begin = perf_counter()
        if self._shared:
            self._forward([Span(-1, self._work.prefix[: self._shared], 0, self._tables[0], wanted=0)])
        for numbers in self._packs():
            chosen = self._forward([self._prompt(n) for n in numbers])
            self._result.first_tokens += [perf_counter() - begin] * len(numbers)
            self._result.answers[numbers, 0] = chosen
        self._result.prefill = perf_counter() - begin
        for step in range(1, self._work.steps):
            before = perf_counter()
            self._result.answers[:, step] = self._forward([self._token(n, step) for n in range(len(self._tables))])
            self._result.steps.append(perf_counter() - before)
        self._result.total = perf_counter() - begin
        return self._result

    def _packs(self) -> list[list[int]]:
        """Questions whose prompts share a forward, under the row budget."""
        packs: list[list[int]] = [[]]
        rows = 0
        for number, prompt in enumerate(self._work.prompts):
            rows += len(prompt) - self._shared
            if packs[-1] and rows > self._budget:
                packs.append([])
                rows = len(prompt) - self._shared
            packs[-1].append(number)
        return packs

    def _prompt(self, number: int) -> Span:
        return Span(number, self._work.prompts[number][self._shared :], self._shared, self._tables[number])

    def _token(self, number: int, step: int) -> Span:
        position = len(self._work.prompts[number]) + step - 1
        return Span(number, self._result.answers[number, step - 1 : step], position, self._tables[number])

    def _forward(self, spans: list[Span]) -> Int32Array:
        pack = Pack.of(spans)
        logits = self._backend.forward(pack)
        self._result.packs.append(pack)
        return logits.argmax(axis=1).astype(np.int32) if len(logits) else np.zeros(0, np.int32)
