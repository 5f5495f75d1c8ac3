"""What users of the bus can rely on when a worker answers."""

from __future__ import annotations

import asyncio
import time

import msgspec
from worker_lab import (
    EOS,
    FakeBackend,
    bus_for,
    letters,
    naive_tokens,
    nothing_queued,
    outcomes,
    question,
    settings_with,
    submit,
    worker,
)

from inference_svc.metrics import WorkerMetrics
from kev.bus.memory import MemoryBus
from kev.bus.messages import OVERFLOW, Delta, Lane
from kev.bus.settings import BusSettings
from kev.domain.outcome import FinishReason, Outcome, Status, text_digest
from kev.domain.question import Sampling


async def test_every_question_is_answered_as_if_it_were_alone() -> None:
    settings = settings_with()
    bus = bus_for(settings)
    asked = [question(n, [1, 2, n % 5], max_tokens=3 + n, sampling=Sampling(0.8 * (n % 2))) for n in range(20)]
    async with worker(bus, settings=settings):
        await submit(bus, asked)
        answers = await outcomes(bus)
        await nothing_queued(bus)
    for item in asked:
        tokens = naive_tokens(item.tokens().tolist(), item.max_tokens, item.sampling, item.seed, 128)
        answer = answers[item.slot]
        assert answer.status is Status.ANSWERED
        assert answer.text == letters(tokens)
        assert answer.finish_reason is (FinishReason.STOP if tokens[-1] == EOS else FinishReason.LENGTH)
        assert answer.audit.completion_tokens == len(tokens)


async def test_an_answer_that_came_too_late_to_be_kept_counts_as_no_outcome() -> None:
    class Cancelling(MemoryBus):
        async def settle(self, outcome: Outcome) -> Outcome:
            if outcome.slot == 1:
                gone = {"status": Status.CANCELLED, "finish_reason": FinishReason.CANCELLED}
                await super().settle(msgspec.structs.replace(outcome, **gone))
            return await super().settle(outcome)

    bus = Cancelling(BusSettings())
    metrics = WorkerMetrics(4, 64)
    async with worker(bus, metrics=metrics):
        await submit(bus, [question(0, [1, 2]), question(1, [1, 2])])
        ends = await outcomes(bus)
        await nothing_queued(bus)
    assert [ends[slot].status for slot in (0, 1)] == [Status.ANSWERED, Status.CANCELLED]
    assert metrics.registry.get_sample_value("kev_inference_outcomes_total", {"status": "answered"}) == 1


async def test_an_outcome_says_how_it_came_about() -> None:
    bus = bus_for(settings_with())
    async with worker(bus, model_digest="m"):
        placed = {"home": "w1/1", "placement": "home w1/1 held 0 of at most 1"}
        asked = [question(1, [1, 2, 3], **placed), question(2, [1, 2, 3], lane=OVERFLOW, branch="overflow")]
        await submit(bus, asked)
        one, two = (await outcomes(bus)).values()
    audit = one.audit
    assert one.id == "q1"
    assert one.attempt == 1
    assert one.text_sha256 == text_digest(one.text)
    assert one.text_length == len(one.text)
    assert audit.channel == "w1/1"
    assert (audit.worker_id, audit.channel_id, audit.bucket, audit.branch) == ("w1", 1, 3, "home")
    assert (audit.home, audit.placement) == ("w1/1", "home w1/1 held 0 of at most 1")
    assert (audit.prompt_tokens, audit.attempts, audit.isolation) == (3, 1, "strict")
    assert (audit.backend, audit.variant, audit.model_digest) == ("fake", "fake-1", "m")
    assert audit.forwards == audit.completion_tokens >= 1
    assert audit.accepted_ms <= audit.started_ms <= audit.finished_ms <= time.time() * 1000
    assert audit.elapsed_ms > 0
    assert two.audit.branch == "overflow"


async def test_the_streamed_pieces_are_the_answer() -> None:
    bus = bus_for(settings_with())
    async with worker(bus), bus.follow("r1") as feed:
        await submit(bus, [question(n, [n], max_tokens=12) for n in range(4)])
        texts, done = dict.fromkeys(range(4), ""), {}
        async for item in feed:
            if isinstance(item, Delta):
                assert len({piece.slot for piece in item.pieces}) == len(item.pieces)
                for piece in item.pieces:
                    assert piece.offset == len(texts[piece.slot])
                    texts[piece.slot] += piece.text
            elif isinstance(item, Outcome):
                done[item.slot] = item.text
            if len(done) == 4:
                break
    assert texts == done


async def test_a_deadline_ends_a_slot_with_the_text_so_far() -> None:
    backend = FakeBackend(before=lambda pack: time.sleep(0.01), max_context=100_000, pages=7000)
    settings = settings_with(core__max_context=100_000)
    bus = bus_for(settings)
    deadline = time.time_ns() // 1_000_000 + 300
    async with worker(bus, backend, settings=settings):
        asked = question(0, [1], max_tokens=90_000, deadline_ms=deadline, sampling=Sampling(1.0))
        await submit(bus, [asked])
        answer = (await outcomes(bus))[0]
    full = letters(naive_tokens([1], 400, Sampling(1.0), 0, 128_000))
    if answer.status is Status.TIMED_OUT:
        assert answer.finish_reason is FinishReason.TIMEOUT
    assert full.startswith(answer.text)


async def test_too_late_too_big_and_foreign_questions_end_with_their_reason() -> None:
    bus = bus_for(settings_with())
    late = time.time_ns() // 1_000_000 - 10
    async with worker(bus):
        await submit(
            bus,
            [
                question(0, [1], deadline_ms=late),
                question(1, [1] * 128),
                question(2, [1], tokenizer_digest="another"),
                question(3, [1]),
            ],
        )
        found = await outcomes(bus)
        await nothing_queued(bus)
    assert [found[n].status for n in range(4)] == [Status.TIMED_OUT, Status.REFUSED, Status.FAILED, Status.ANSWERED]
    assert [found[n].reason for n in range(3)] == ["", "too_long", "tokenizer_mismatch"]
    assert "128 tokens" in found[1].detail
    assert found[0].audit.started_ms == 0


async def test_a_nan_fails_its_own_slot_only() -> None:
    bus = bus_for(settings_with())
    async with worker(bus, FakeBackend(poison=frozenset({40}))):
        await submit(bus, [question(n, [40 if n == 2 else 30, n], max_tokens=4) for n in range(4)])
        found = await outcomes(bus)
    assert (found[2].status, found[2].reason) == (Status.FAILED, "non_finite")
    for n in (0, 1, 3):
        assert found[n].text == letters(naive_tokens([30, n], 4, Sampling(), n, 128))


async def test_a_forward_that_raises_fails_the_culprit_only() -> None:
    bus = bus_for(settings_with())
    async with worker(bus, FakeBackend(crash=frozenset({40}))):
        await submit(bus, [question(n, [40 if n == 2 else 30, n], max_tokens=4) for n in range(4)])
        found = await outcomes(bus)
    assert (found[2].status, found[2].reason) == (Status.FAILED, "internal")
    assert "crash token" not in found[2].detail
    for n in (0, 1, 3):
        assert found[n].text == letters(naive_tokens([30, n], 4, Sampling(), n, 128))


async def test_questions_join_while_others_run() -> None:
    bus = bus_for(settings_with())
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    backend = FakeBackend(before=lambda pack: (loop.call_soon_threadsafe(gate.set), time.sleep(0.002))[1])
    async with worker(bus, backend):
        await submit(bus, [question(0, [5], max_tokens=60, sampling=Sampling(1.5))])
        await gate.wait()
        await submit(bus, [question(0, [6], rid="r2", lane=Lane("w1", 1))])
        await outcomes(bus)
        await outcomes(bus, "r2")
    assert any(len(pack.spans) == 2 for pack in backend.packs)
