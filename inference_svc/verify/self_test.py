"""The start-up self-test: isolation, proved on the loaded model before it serves.

Short on purpose: it runs 12 small forwards. Later claims read the pages that
earlier ones filled. It uses pages of the store from 0 on and leaves them scrubbed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from inference_svc.backends.port import Backend
from inference_svc.rows import Float32Array
from inference_svc.verify import checks
from inference_svc.verify.lanes import Lane, Prompt, Solo, drive, lane
from inference_svc.verify.report import Check, SelfTestReport, compare

PAGES = 12
"""Pages that the self-test writes."""

LONGEST = 34
"""Positions of its longest channel: it ends in its third page."""

_PREFIX = 17
_CUT = 20
_TABLES = ((7, 2, 9), (1, 6), (4,))
"""Pages of the three channels: out of order and apart."""


def self_test(backend: Backend) -> SelfTestReport:
    """Tries the main claims and one control on a backend whose KV store is not in use.

    The claim about NaN is tried on backends that can plant one: those with
    ``fill(pages, value)``.

    Raises:
        ValueError: the KV store or the model's context is too small for the test.
    """
    if backend.pages < PAGES or backend.max_context < LONGEST:
        raise ValueError(
            f"self-test: needs {PAGES} pages and {LONGEST} positions, "
            f"got {backend.pages} pages and {backend.max_context} positions"
        )
    prompts = _prompts(backend.vocab_size)
    solo = Solo(backend)
    expected = solo.all(prompts)
    found = [checks.shared_prefix(backend, prompts[:2], [_PREFIX], solo=solo), _packed(backend, prompts, expected)]
    ends = [_last(prompt, table) for prompt, table in zip(prompts, _TABLES, strict=True)]
    fill: checks.Fill | None = getattr(backend, "fill", None)
    if fill is not None:
        found.append(_nan(backend, ends, [rows[-1:] for rows in expected], fill))
    found.append(_leak(backend, ends, expected[2][-1:]))
    backend.scrub(range(PAGES))
    return SelfTestReport(backend.variant, tuple(found))


def _packed(backend: Backend, prompts: Sequence[Prompt], expected: Sequence[Float32Array]) -> Check:
    """Joining one after the other, one cut in two, in scattered pages and other channels."""
    lanes = [
        lane(prompt, channel=9 - number, table=_TABLES[number], chunk=_CUT).delayed(start)
        for number, (prompt, start) in enumerate(zip(prompts, (0, 1, 2), strict=True))
    ]
    return compare("packed equals alone", expected, drive(backend, lanes))


def _nan(backend: Backend, ends: Sequence[Lane], expected: Sequence[Float32Array], fill: checks.Fill) -> Check:
    """The first channel's first page is damaged, and every channel's last row computed again."""
    fill(_TABLES[0][:1], float("nan"))
    damaged, *others = drive(backend, ends)
    check = compare("a NaN stays in its channel", expected[1:], others)
    if np.isfinite(damaged).any():
        return Check(check.claim, False, "the damaged channel's logits hold finite values")
    return check


def _leak(backend: Backend, ends: Sequence[Lane], expected: Float32Array) -> Check:
    """A control: the third channel reads the second one's page."""
    lent = replace(ends[2], table=np.array(_TABLES[1][:1], dtype=np.int32))
    control = compare("", [expected], drive(backend, [lent]))
    verdict = "not seen: this test cannot see a leak" if control.passed else "seen"
    return Check("a planted leak is seen", not control.passed, f"{verdict} ({control.detail})")


def _last(prompt: Prompt, table: Sequence[int]) -> Lane:
    """The last row of a prompt once more; all before it is in the store."""
    return lane(Prompt(prompt.prompt + prompt.answer), channel=table[0], table=table, skip=prompt.length - 1)


def _prompts(vocab: int) -> tuple[Prompt, Prompt, Prompt]:
    """Three prompts. Two begin alike, the first of them is also continued by a token; the third is all its own."""
    draw = _token_source(vocab)
    prefix, long, short, own, answer = (
        tuple(draw() for _ in range(n)) for n in (_PREFIX, LONGEST - 1 - _PREFIX, 2, 5, 1)
    )
    return Prompt(prefix + long, answer), Prompt(prefix + short), Prompt(own)


def _token_source(vocab: int) -> Callable[[], int]:
    """Tokens by a fixed recurrence: the same on every machine, no random state touched."""
    state = 12345

    def draw() -> int:
        nonlocal state
        state = (1103515245 * state + 12345) % (1 << 31)
        return (state >> 8) % vocab

    return draw
