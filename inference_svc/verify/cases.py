"""Questions answered alone: what every claim is held against. Each is computed once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inference_svc.backends.port import Backend
from inference_svc.rows import Pack, Span, pages_for
from inference_svc.sample import Sampler
from inference_svc.verify.lanes import Lane, Prompt, lane
from inference_svc.verify.marks import Choice, Mark, choice_of, mark_of
from kev.domain.question import Sampling

GREEDY = Sampling()
SAMPLED = Sampling(temperature=0.8, top_p=0.95)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A question and what it came to alone.

    Attributes:
        prompt: Its tokens, and those of its answer as they were fed again.
        sampling, seed: How its tokens were chosen.
        marks, choices: One per token of the answer.
    """

    prompt: Prompt
    sampling: Sampling
    seed: int
    marks: tuple[Mark, ...]
    choices: tuple[Choice, ...]

    def first(self, steps: int) -> Case:
        """The same question with a shorter answer."""
        prompt = replace(self.prompt, answer=self.prompt.answer[: steps - 1])
        return replace(self, prompt=prompt, marks=self.marks[:steps], choices=self.choices[:steps])


def answered_alone(backend: Backend, tokens: Sequence[int], steps: int, sampling: Sampling, seed: int) -> Case:
    """Answers a question with nobody else in the pack, ``steps`` tokens, in pages 0, 1, 2 ...

    It goes on past an end token: it is the logits that are compared.
    """
    sampler = Sampler(sampling, seed)
    table = np.arange(pages_for(len(tokens) + steps), dtype=np.int32)
    marks: list[Mark] = []
    choices: list[Choice] = []
    fresh, position = np.asarray(tokens, dtype=np.int32), 0
    for step in range(steps):
        row = backend.forward(Pack.of([Span(0, fresh, position, table)]))[0]
        marks.append(mark_of(row))
        choices.append(choice_of(row, sampler, step))
        position += len(fresh)
        fresh = np.array([max(choices[-1].token, 0)], dtype=np.int32)
    answer = tuple(max(choice.token, 0) for choice in choices[:-1])
    return Case(Prompt(tuple(tokens), answer), sampling, seed, tuple(marks), tuple(choices))


def answered(backend: Backend, prompts: Iterable[Sequence[int]], steps: int) -> list[Case]:
    """All questions alone, one after the other; every other one greedy, the rest sampled with seeds of their own."""
    return [
        answered_alone(backend, tokens, steps, SAMPLED if number % 2 else GREEDY, seed=1000 + number)
        for number, tokens in enumerate(prompts)
    ]


def side_by_side(cases: Sequence[Case], chunk: int | None = None) -> list[Lane]:
    """Every case in its own channel and pages, all joining at once."""
    lanes, page = [], 0
    for channel, case in enumerate(cases):
        lanes.append(lane(case.prompt, channel=channel, first_page=page, chunk=chunk))
        page += case.prompt.pages
    return lanes


def marks_of(cases: Iterable[Case]) -> list[tuple[Mark, ...]]:
    """The marks of several cases."""
    return [case.marks for case in cases]
