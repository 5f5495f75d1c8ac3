"""An engine outlives its worker: where the model thread ends on an error, another one follows."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_lab import SLEEPY, FakeModel, fake_model, fake_settings

from inference_svc.worker import Worker
from kev.app.engine import Engine
from kev.domain.result import SlotResult
from kev.tokens.tokenizer import Tokenizer

pytestmark = pytest.mark.model
WAIT_S = 60


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kev.app.engine.kept.RETRY_S", 0.1)


@pytest.fixture
def fake(default_model: Path) -> FakeModel:
    return FakeModel(Tokenizer.load(default_model))


@pytest.fixture
def engine(default_model: Path, fake: FakeModel) -> Iterator[Engine]:
    model = dataclasses.replace(fake_model(default_model), backend=fake)
    with Engine(fake_settings(bus_ack_wait_ms=400), model=model) as engine:
        yield engine


def ends_after_a_forward(engine: Engine, fake: FakeModel) -> None:
    """The model thread of the worker that serves now ends while it has questions in hand."""
    desk, before = engine._tiers.worker.core._desk, len(fake.packs)
    plan = desk.plan

    def failing() -> Any:
        if len(fake.packs) > before:
            raise MemoryError("gone")
        return plan()

    desk.plan = failing  # type: ignore[method-assign]


def submit(engine: Engine) -> str:
    return engine.submit([f"Name a {SLEEPY} river.", f"Name a {SLEEPY} lake."], max_tokens=8)


def answers(engine: Engine) -> list[SlotResult]:
    return engine.wait(submit(engine), timeout=WAIT_S)


def healthy(engine: Engine) -> bool:
    return engine._call(lambda tiers: tiers.healthy())


def test_what_ran_is_answered_by_the_next_worker(engine: Engine, fake: FakeModel) -> None:
    calm, first = answers(engine), engine._tiers.worker
    ends_after_a_forward(engine, fake)
    again = answers(engine)
    assert [result.text for result in again] == [result.text for result in calm]
    assert {result.status for result in again} == {"answered"}
    assert max(result.attempt for result in again) == 2
    assert engine._tiers.worker is not first
    assert healthy(engine)


@pytest.mark.parametrize("fault", ["start", "make"])
def test_a_worker_that_cannot_begin_is_tried_again(engine: Engine, fake: FakeModel, fault: str) -> None:
    kept, tries = engine._tiers._kept, []
    make = kept._make

    def reluctant() -> Worker:
        worker = make()
        tries.append(worker)
        if len(tries) == 1 and fault == "make":
            raise MemoryError("gone")
        if len(tries) == 1:
            worker._self_test = _no_memory
        return worker

    kept._make = reluctant
    ends_after_a_forward(engine, fake)
    assert {result.status for result in answers(engine)} == {"answered"}
    assert len(tries) == 2
    assert engine._tiers.worker is tries[1]


def test_nobody_follows_while_the_model_thread_runs(engine: Engine, fake: FakeModel) -> None:
    kept, first, looked = engine._tiers._kept, engine._tiers.worker, threading.Event()

    class Hanging:
        """A core that goes on, whatever it is told."""

        @property
        def alive(self) -> bool:
            looked.set()
            return True

    async def closed() -> None:
        first.core = Hanging()  # type: ignore[assignment]

    close, core = first.close, first.core
    first.close = closed  # type: ignore[method-assign]
    ends_after_a_forward(engine, fake)
    submit(engine)
    assert looked.wait(WAIT_S)
    assert kept.worker is first
    first.close, first.core = close, core  # type: ignore[method-assign]


def test_an_engine_without_a_worker_says_so_and_closes(engine: Engine, fake: FakeModel) -> None:
    kept, called = engine._tiers._kept, threading.Event()
    make = kept._make

    def never() -> Worker:
        worker = make()
        worker._self_test = _no_memory
        called.set()
        return worker

    kept._make = never
    ends_after_a_forward(engine, fake)
    submit(engine)
    assert called.wait(WAIT_S)
    assert not healthy(engine)


def _no_memory(backend: object) -> str:
    raise MemoryError("gone")
