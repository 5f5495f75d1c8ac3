"""kev.Engine: one process, the same methods as the client, from threads and from event loops."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_lab import SLEEPY, FakeModel, fake_model, fake_settings

import kev
from inference_svc.loading import LoadedModel
from kev.app.engine import Engine
from kev.config.load import ConfigError
from kev.domain.errors import AlreadyUsed, InvalidArgument, KevError, NotFound, NotServed
from kev.domain.outcome import text_digest
from kev.domain.result import Frame, ResumePoint

pytestmark = pytest.mark.model
QUESTIONS = [
    "What is the capital of France?",
    "请问怎么退款？",
    {"id": "third", "text": "Name a river.", "max_tokens": 3},
]


@pytest.fixture(scope="module")
def model(default_model: Path) -> LoadedModel:
    return fake_model(default_model)


@pytest.fixture(scope="module")
def shared(model: LoadedModel) -> Iterator[Engine]:
    with Engine(fake_settings(), model=model) as engine:
        yield engine


@pytest.fixture
def engine(shared: Engine, fake: FakeModel) -> Iterator[Engine]:
    yield shared
    fake.gate.set()


@pytest.fixture(scope="module")
def fake(model: LoadedModel) -> FakeModel:
    assert isinstance(model.backend, FakeModel)
    return model.backend


def texts(frames: list[Frame]) -> dict[int, str]:
    found: dict[int, str] = {}
    for frame in frames:
        found[frame.slot] = ("" if frame.reset else found.get(frame.slot, "")[: frame.text_offset]) + frame.text
    return found


def test_kev_hands_out_the_engine() -> None:
    assert kev.Engine is Engine


def test_submit_and_wait_give_one_result_a_slot(engine: Engine) -> None:
    request_id = engine.submit(QUESTIONS, isolation="strict", max_parallel=2, max_tokens=20)
    results = engine.wait(request_id, timeout=30)
    assert [result.slot for result in results] == [0, 1, 2]
    assert [result.id for result in results] == ["", "", "third"]
    assert all(result.ok and result.text for result in results)
    assert results[2].tokens <= 3
    assert all(0 <= result.channel_id < 8 and result.elapsed_ms > 0 for result in results)
    assert results[0].audit.worker_id == "lab"


def test_ask_streams_what_the_results_say(engine: Engine) -> None:
    frames = list(engine.ask(QUESTIONS, max_tokens=20))
    last = {frame.slot: frame.result for frame in frames if frame.result is not None}
    assert set(last) == {0, 1, 2}
    for slot, text in texts(frames).items():
        result = last[slot]
        assert result is not None
        assert result.text == text
        assert text_digest(text) == result.text_sha256


def test_a_stream_can_be_read_again_and_resumed(engine: Engine) -> None:
    request_id = engine.submit("Name a colour.", max_tokens=20)
    (whole,) = engine.wait(request_id)
    assert texts(list(engine.stream(request_id))) == {0: whole.text}
    rest = list(engine.stream(request_id, [ResumePoint(0, whole.attempt, 4)]))
    assert "".join(frame.text for frame in rest) == whole.text[4:]


def test_leaving_ask_cancels_what_is_unfinished(engine: Engine) -> None:
    frames = engine.ask([f"Tell me a {SLEEPY} story."] * 2, max_tokens=200, timeout_ms=60_000)
    first = next(frames)
    frames.close()
    results = engine.wait(first.request_id, timeout=30)
    assert {result.status for result in results} <= {"cancelled", "answered"}
    assert any(result.status == "cancelled" for result in results)


def test_leaving_a_stream_cancels_nothing(engine: Engine) -> None:
    request_id = engine.submit(f"A {SLEEPY} one.", max_tokens=100)
    frames = engine.stream(request_id)
    next(frames)
    frames.close()
    assert engine.wait(request_id, timeout=30)[0].ok


def test_waiting_with_a_timeout_gives_pending_slots(engine: Engine, fake: FakeModel) -> None:
    fake.gate.clear()
    request_id = engine.submit("Held back.", max_tokens=2)
    assert [result.status for result in engine.wait(request_id, timeout=0)] == ["pending"]
    fake.gate.set()
    assert engine.wait(request_id, timeout=30)[0].ok


def test_cancel_ends_open_slots(engine: Engine, fake: FakeModel) -> None:
    fake.gate.clear()
    request_id = engine.submit(["One.", "Two."])
    assert engine.cancel(request_id, [1]) == (1,)
    assert engine.cancel(request_id) == (0,)
    assert engine.cancel(request_id) == ()
    fake.gate.set()
    assert [result.status for result in engine.wait(request_id)] == ["cancelled", "cancelled"]


def test_a_mixed_batch_ends_slot_by_slot(engine: Engine) -> None:
    long = "word " * 2000
    late = {"text": f"A {SLEEPY} story.", "timeout_ms": 800, "max_tokens": 240}
    request_id = engine.submit(["Good?", "", long, late], max_tokens=8)
    good, empty, too_long, timed_out = engine.wait(request_id, timeout=30)
    assert good.ok
    assert (empty.status, empty.reason) == ("refused", "empty")
    assert (too_long.status, too_long.reason) == ("refused", "too_long")
    assert "allowed: 255" in too_long.detail
    assert timed_out.status in ("timed_out", "answered"), "a fast machine may finish in time"


def test_mistakes_name_the_field(engine: Engine) -> None:
    with pytest.raises(InvalidArgument, match=r"queries\[1\].max_tokens"):
        engine.submit(["a", {"text": "b", "max_tokens": 0}])
    with pytest.raises(InvalidArgument, match="isolation: must be one of strict, shared, loose"):
        engine.submit("a", isolation="weak")
    with pytest.raises(NotServed, match="loose is weaker"):
        engine.submit("a", isolation="loose")
    with pytest.raises(InvalidArgument, match="queries"):
        engine.ask([])
    with pytest.raises(NotFound):
        engine.wait("nobody")
    with pytest.raises(NotFound):
        next(engine.stream("nobody"))


def test_a_request_id_makes_a_submit_idempotent(engine: Engine) -> None:
    assert engine.submit("Same?", request_id="mine", max_tokens=2) == "mine"
    assert engine.submit("Same?", request_id="mine", max_tokens=2) == "mine"
    with pytest.raises(AlreadyUsed):
        engine.submit("Different?", request_id="mine", max_tokens=2)


def test_async_code_uses_the_same_engine(engine: Engine) -> None:
    async def work() -> list[Frame]:
        request_id = await engine.aio.submit(QUESTIONS, max_tokens=5)
        results = await engine.aio.wait(request_id, timeout=30)
        assert all(result.ok for result in results)
        assert [frame async for frame in engine.aio.stream(request_id)]
        return [frame async for frame in engine.aio.ask("Async?", max_tokens=5)]

    frames = asyncio.run(work())
    assert frames[-1].result is not None
    assert frames[-1].result.ok


def test_leaving_an_async_ask_cancels(engine: Engine, fake: FakeModel) -> None:
    async def work() -> list[Any]:
        frames = engine.aio.ask(f"A {SLEEPY} story.", max_tokens=200)
        first = await anext(frames)
        await frames.aclose()
        return await engine.aio.wait(first.request_id, timeout=30)

    (result,) = asyncio.run(work())
    assert result.status in ("cancelled", "answered")


def test_cancelling_an_async_reader_in_the_middle_is_clean(engine: Engine, fake: FakeModel) -> None:
    async def read() -> None:
        async for _ in engine.aio.ask("Held back.", max_tokens=2, request_id="held"):
            pass

    async def work() -> None:
        fake.gate.clear()
        reader = asyncio.create_task(read())
        while True:
            try:
                await engine.aio.wait("held", timeout=0)
                break
            except NotFound:
                await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        fake.gate.set()
        assert [result.status for result in await engine.aio.wait("held")] == ["cancelled"]

    asyncio.run(work())


def test_many_threads_may_ask_at_a_time(engine: Engine) -> None:
    found: dict[int, list[str]] = {}

    def work(number: int) -> None:
        found[number] = [result.text for result in engine.wait(engine.submit(QUESTIONS, max_tokens=6), timeout=30)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len({tuple(answer) for answer in found.values()}) == 1, "neighbours change no answer"


def test_the_engines_loop_thread_is_not_the_callers(engine: Engine) -> None:
    async def inside_a_running_loop() -> bool:
        return engine.wait(engine.submit("From inside a loop?", max_tokens=2))[0].ok

    assert asyncio.run(inside_a_running_loop())


def test_a_closed_engine_says_so(model: LoadedModel) -> None:
    engine = Engine(fake_settings(), model=model)
    engine.close()
    engine.close()
    with pytest.raises(KevError, match="closed"):
        engine.submit("Anybody?")
    assert not model.backend.closed, "a model that was given stays the giver's"


def test_closing_ends_readers(model: LoadedModel, fake: FakeModel) -> None:
    engine = Engine(fake_settings(), model=model)
    request_id = engine.submit(f"A {SLEEPY} story.", max_tokens=200)
    frames = engine.stream(request_id)
    next(frames)
    engine.close()
    with pytest.raises(KevError):
        list(frames)


SCRIPT = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from engine_lab import fake_model, fake_settings
from kev.app.engine import Engine
from kev.domain.errors import KevError
model = fake_model(Path(sys.argv[2]))
engine = Engine(fake_settings(isolation_level="shared"), model=model)
assert engine.wait(engine.submit("Why?", max_tokens=1))[0].ok
if sys.argv[3] == "fork" and os.fork() == 0:
    try:
        engine.submit("Why?")
    except KevError as error:
        print("told:", error, flush=True)
    engine.close()
    sys.exit(0)
if sys.argv[3] == "fork":
    assert os.wait()[1] == 0
assert engine.wait(engine.submit("Why?", max_tokens=1))[0].ok
"""


@pytest.mark.parametrize("how", ["plain", "fork"])
def test_a_process_ends_cleanly_without_a_close_and_a_fork_is_told(default_model: Path, how: str) -> None:
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(default_model), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("told: it was made in the process that this one was forked from" in done.stdout) is (how == "fork")


def test_what_the_router_cannot_start_with_is_a_bad_configuration(model: LoadedModel) -> None:
    with pytest.raises(ConfigError, match=r"router\.codebook: /no/codebook cannot be read"):
        Engine(fake_settings(router_strategy="semantic_hash", router_codebook="/no/codebook"), model=model)


def test_an_engine_serves_one_process_only(model: LoadedModel) -> None:
    with pytest.raises(ConfigError, match=r"deploy\.mode: one process serves the mode single only, got distributed"):
        Engine(fake_settings(deploy_mode="distributed"), model=model)


def test_bad_settings_and_a_missing_model_are_told(tmp_path: Path) -> None:
    from inference_svc.loading import ModelUnusable

    with pytest.raises(ConfigError, match=r"core\.precision"):
        Engine.from_config(core_precision="float32")
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        Engine.from_config(tmp_path / "absent.yaml")
    with pytest.raises(ModelUnusable, match=r"core\.model_path: '/no/model' does not exist"):
        Engine.from_config(None, {"core.model_path": "/no/model"})


def test_the_first_of_two_asks_to_leave_ends_nothing(engine: Engine) -> None:
    first, second = (engine.ask(f"A {SLEEPY} story.", max_tokens=200, request_id="twice") for _ in range(2))
    next(first)
    next(second)
    first.close()
    ends = [frame.result for frame in second if frame.result is not None]
    assert [result.status for result in ends] == ["answered"]
