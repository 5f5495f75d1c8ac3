"""Claims about packs of answered questions: whatever stands around a question, its logits are those it had alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from inference_svc.backends.port import Backend
from inference_svc.sample import Sampler
from inference_svc.verify.cases import Case, marks_of, side_by_side
from inference_svc.verify.checks import Fill
from inference_svc.verify.lanes import Lane, Prompt, lane
from inference_svc.verify.marks import Choice, Mark, choice_of, compare_marks, equal, mark_of, marks, watch
from inference_svc.verify.report import Check

RunWith = Callable[[int, Callable[[Backend], Check]], Check]
"""Calls a function with a backend that has so many threads."""
CHUNKS = (1, 5, 16, 17, 64)
"""Sizes that prompts are cut into: below, on and above a page."""
USUAL_CHUNK = 48
STRANGERS = 4
STRANGER_TOKENS = 24


@dataclass(slots=True)
class Subject:
    """What is tried: a backend whose KV store is not in use, and questions answered alone on it."""

    backend: Backend
    cases: Sequence[Case]
    random: Random

    @property
    def pages(self) -> int:
        """Pages of all questions side by side."""
        return sum(case.prompt.pages for case in self.cases)

    @property
    def reserve(self) -> int:
        """Pages of one channel where every channel has the same number of them in one piece."""
        return 1 + max(case.prompt.pages for case in self.cases)

    def compare(self, claim: str, lanes: Sequence[Lane], backend: Backend | None = None) -> Check:
        """Runs one lane per case together, and holds their marks against those they had alone."""
        return compare_marks(claim, marks_of(self.cases), marks(backend or self.backend, lanes))


def packed(subject: Subject) -> list[Check]:
    """All together, joining one after the other, so that prompts meet answers; and what is made of the logits."""
    cases = subject.cases
    samplers = [Sampler(case.sampling, case.seed) for case in cases]
    lanes = [one.delayed(number // 2) for number, one in enumerate(side_by_side(cases, USUAL_CHUNK))]
    found = watch(subject.backend, lanes, lambda at, step, row: (mark_of(row), choice_of(row, samplers[at], step)))
    choices = [[choice for _, choice in run] for run in found]
    expected = [case.choices for case in cases]
    return [
        compare_marks("packed equals alone", marks_of(cases), [[mark for mark, _ in run] for run in found]),
        equal("seeded samples are the same", "tokens", *_part(expected, choices, lambda choice: choice.token)),
        equal("log probabilities are the same", "tokens", *_part(expected, choices, lambda choice: choice.logprobs)),
    ]


def neighbours(subject: Subject, rounds: int) -> Check:
    """In random groups, in random order, among strangers, joining at random forwards."""
    claim = "random neighbours do not matter"
    expected: list[Sequence[Mark]] = []
    found: list[Sequence[Mark]] = []
    for _ in range(rounds):
        for group in _groups(subject):
            lanes = _among_strangers(subject, group)
            expected += [case.marks for case in group]
            found += marks(subject.backend, lanes)[: len(group)]
    return compare_marks(claim, expected, found)


def channels(subject: Subject) -> Check:
    """In channels with random numbers, and in another order in the pack."""
    order = list(range(len(subject.cases)))
    subject.random.shuffle(order)
    numbers = subject.random.sample(range(1024), len(order))
    lanes = side_by_side(subject.cases, USUAL_CHUNK)
    turned = [replace(lanes[place], channel=numbers[place]) for place in order]
    found = marks(subject.backend, turned)
    expected = [subject.cases[place].marks for place in order]
    return compare_marks("channel and place in the pack do not matter", expected, found)


def chunks(subject: Subject) -> Check:
    """Prompts cut into pieces of many sizes."""
    lanes, page = [], 0
    for number, case in enumerate(subject.cases):
        size = CHUNKS[number % len(CHUNKS)]
        lanes.append(lane(case.prompt, channel=number, first_page=page, chunk=size))
        page += case.prompt.pages
    return subject.compare("chunk sizes do not matter", lanes)


def split_pages(subject: Subject) -> Check:
    """Pages as they were free: out of order and apart, as ``kv_cache: split`` gives them."""
    free = list(range(subject.backend.pages))
    subject.random.shuffle(free)
    lanes = []
    for number, case in enumerate(subject.cases):
        table = [free.pop() for _ in range(case.prompt.pages)]
        lanes.append(lane(case.prompt, channel=number, table=table, chunk=USUAL_CHUNK))
    return subject.compare("scattered pages (split) do not matter", lanes)


def unified_pages(subject: Subject) -> Check:
    """One reserved piece a channel, as ``kv_cache: unified`` gives it."""
    lanes = [
        lane(case.prompt, channel=number, first_page=number * subject.reserve, chunk=USUAL_CHUNK)
        for number, case in enumerate(subject.cases)
    ]
    return subject.compare("reserved pages (unified) do not matter", lanes)


def leftovers(subject: Subject, fill: Fill) -> Check:
    """What an earlier owner left in the pages, even a NaN, is never read."""
    pages = range(subject.pages)
    fill(pages, float("nan"))
    check = subject.compare("leftovers in a page are never read", side_by_side(subject.cases, USUAL_CHUNK))
    fill(pages, 0.0)
    return check


def threads(subject: Subject, counts: Sequence[int], run_with: RunWith) -> Check:
    """Other numbers of threads, each on the same pack."""
    claim = "the number of threads does not matter"
    lanes = side_by_side(subject.cases, USUAL_CHUNK)
    tried = [run_with(count, lambda backend: subject.compare(claim, lanes, backend)) for count in counts]
    named = " and ".join(str(count) for count in counts)
    broken = next((check for check in tried if not check.passed), None)
    return Check(claim, broken is None, f"{(broken or tried[0]).detail} (with {named} threads)")


def _groups(subject: Subject) -> list[list[Case]]:
    left = list(subject.cases)
    subject.random.shuffle(left)
    groups = []
    while left:
        size = subject.random.randint(1, max(1, len(subject.cases) // 2))
        groups.append(left[:size])
        left = left[size:]
    return groups


def _among_strangers(subject: Subject, group: Sequence[Case]) -> list[Lane]:
    """The group's lanes, then those of strangers with random tokens."""
    draw, vocab = subject.random, subject.backend.vocab_size
    strangers = [
        Prompt(
            tuple(draw.randrange(vocab) for _ in range(draw.randint(1, STRANGER_TOKENS))), (draw.randrange(vocab),) * 2
        )
        for _ in range(draw.randint(1, STRANGERS))
    ]
    lanes, page = [], 0
    for channel, prompt in enumerate([*(case.prompt for case in group), *strangers]):
        one = lane(prompt, channel=channel, first_page=page, chunk=draw.choice((16, 33, 64)))
        lanes.append(one.delayed(draw.randrange(4)))
        page += prompt.pages
    return lanes


def _part(
    expected: Sequence[Sequence[Choice]], found: Sequence[Sequence[Choice]], of: Callable[[Choice], object]
) -> tuple[list[list[object]], list[list[object]]]:
    left = [[of(choice) for choice in run] for run in expected]
    right = [[of(choice) for choice in run] for run in found]
    return left, right
