"""The start-up self-test: isolation, proved on the loaded model before it serves.

Short on purpose: it runs 16 small forwards. It uses pages of the store from 0
on and leaves them scrubbed.
"""

from __future__ import annotations

from collections.abc import Callable

from inference_svc.backends.port import Backend
from inference_svc.verify import checks, controls
from inference_svc.verify.lanes import Prompt, Solo
from inference_svc.verify.report import Check, SelfTestReport

PAGES = 12
"""Pages that the self-test writes."""

LONGEST = 37
"""Positions of its longest channel."""

_PREFIX = 17


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
    solo = Solo(backend)
    first, second, third = _prompts(backend.vocab_size)
    found = [
        checks.packed_alone(backend, [first, second, third], starts=[0, 0, 1], solo=solo),
        checks.chunking(backend, first, [20], solo=solo),
        checks.page_permutation(backend, second, solo=solo),
        checks.shared_prefix(backend, [first, second], [_PREFIX], solo=solo),
        _detected(controls.page_shared(backend, [second, third], solo=solo)),
    ]
    fill: checks.Fill | None = getattr(backend, "fill", None)
    if fill is not None:
        found.append(checks.planted_nan(backend, [first, second, third], fill, solo=solo))
    backend.scrub(range(PAGES))
    return SelfTestReport(backend.variant, tuple(found))


def _detected(control: Check) -> Check:
    verdict = "not seen: this test cannot see a leak" if control.passed else "seen"
    return Check("a planted leak is seen", not control.passed, f"{verdict} ({control.detail})")


def _prompts(vocab: int) -> tuple[Prompt, Prompt, Prompt]:
    """Three prompts. Two begin alike, the first of them is also continued by a token; the third is all its own."""
    draw = _token_source(vocab)
    prefix, long, short, own, answer = (
        tuple(draw() for _ in range(n)) for n in (_PREFIX, LONGEST - 1 - _PREFIX, 4, 18, 1)
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
