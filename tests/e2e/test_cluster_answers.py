"""A local cluster of real processes with the real model: every slot ends once, whatever happens to the processes."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Iterable

import pytest
from cluster_lab import child_with, service
from conftest import Up

import kev
from kev.bus.nats.server import LocalNats
from kev.domain.outcome import text_digest
from kev.domain.result import Frame, SlotResult

pytestmark = [pytest.mark.model, pytest.mark.timeout(400)]
STORY = "Tell me a long story about the sea, number {}."


class Follower:
    """Reads a batch's frames in a thread; keeps texts, resets and results."""

    def __init__(self, frames: Iterable[Frame]) -> None:
        self.texts: dict[int, str] = {}
        self.resets: set[int] = set()
        self.results: dict[int, SlotResult] = {}
        self.endings = 0
        self.some_text = threading.Event()
        self.error: BaseException | None = None
        self._frames = frames
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for frame in self._frames:
                self.take(frame)
        except BaseException as error:
            self.error = error
        self.some_text.set()

    def take(self, frame: Frame) -> None:
        if frame.reset:
            self.resets.add(frame.slot)
        before = "" if frame.reset else self.texts.get(frame.slot, "")
        self.texts[frame.slot] = before[: frame.text_offset] + frame.text
        if len(self.texts) >= 4 and all(self.texts.values()):
            self.some_text.set()
        if frame.result is not None:
            self.results[frame.slot] = frame.result
            self.endings += 1

    def finish(self) -> None:
        self._thread.join(300)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error


def check_all_answered(follower: Follower, results: list[SlotResult], count: int) -> None:
    """Exactly one outcome a slot, all of them answers, and the streamed text is the outcome's."""
    assert [result.slot for result in results] == list(range(count))
    assert [result.status for result in results] == ["answered"] * count
    assert follower.endings == count
    for result in results:
        assert follower.texts[result.slot] == result.text
        assert text_digest(follower.texts[result.slot]) == result.text_sha256
        assert follower.results[result.slot] == result


def test_a_worker_killed_while_it_answers_loses_nothing(up: Up) -> None:
    with kev.Client(up.router) as client:
        request_id = client.submit([STORY.format(n) for n in range(12)], max_tokens=48, timeout_ms=300_000)
        follower = Follower(client.stream(request_id))
        assert follower.some_text.wait(120)
        os.kill(child_with(up.process.pid, "inference.worker_id=w1"), signal.SIGKILL)
        follower.finish()
        results = client.wait(request_id, timeout=60)
    check_all_answered(follower, results, 12)
    again = {result.slot for result in results if result.attempt > 1}
    assert again, "no slot was repeated: the worker was killed too late to show anything"
    assert follower.resets <= again
    up.process.wait_for_line("w1         | is ready again")


def test_the_only_worker_killed_and_one_of_another_name_takes_over(default_model: object) -> None:
    with LocalNats() as nats:
        bus = {"bus__url": nats.url, "bus__ack_wait_ms": "8000", "bus__lease_ms": "2000"}
        with (
            service("aggregator_svc", aggregator__listen="127.0.0.1:0", **bus) as aggregator,
            service("inference_svc", inference__listen="127.0.0.1:0", inference__worker_id="old", **bus) as old,
        ):
            at = aggregator.ready()["address"]
            old.ready()
            with (
                service("router_svc", router__listen="127.0.0.1:0", router__aggregator=at, **bus) as router,
                kev.Client(router.ready()["address"]) as client,
            ):
                request_id = client.submit([STORY.format(n) for n in range(10)], max_tokens=16, timeout_ms=300_000)
                follower = Follower(client.stream(request_id))
                assert follower.some_text.wait(120)
                old.kill()
                with service(
                    "inference_svc", inference__listen="127.0.0.1:0", inference__worker_id="new", **bus
                ) as new:
                    follower.finish()
                    print(new.text())
                results = client.wait(request_id, timeout=60)
    check_all_answered(follower, results, 10)
    repeated = {result.slot for result in results if result.attempt > 1}
    assert repeated
    assert follower.resets
    assert follower.resets <= repeated
    assert "new" in {result.audit.worker_id for result in results}


def test_good_and_bad_questions_of_one_batch_each_end_their_own_way(up: Up) -> None:
    good = [f"Name a river of {land}." for land in ("France", "Egypt", "China", "Brazil", "India")]
    late = {"text": STORY.format(0), "timeout_ms": 300, "max_tokens": 2000}
    with kev.Client(up.router) as client:
        request_id = client.submit(["", "word " * 20_000, late, *good], max_tokens=16, timeout_ms=120_000)
        empty, too_long, timed_out, *answered = client.wait(request_id, timeout=150)
    assert (empty.status, empty.reason) == ("refused", "empty")
    assert (too_long.status, too_long.reason) == ("refused", "too_long")
    assert "20" in too_long.detail
    assert "allowed: 511" in too_long.detail
    assert (timed_out.status, timed_out.finish_reason) == ("timed_out", "timeout")
    assert timed_out.text_sha256 == text_digest(timed_out.text)
    assert [result.status for result in answered] == ["answered"] * 5
    assert all(result.text for result in answered)


def test_leaving_ask_frees_the_channels_for_the_next_question(up: Up) -> None:
    with kev.Client(up.router) as client:
        alone = client.wait(client.submit("What is the capital of France?", max_tokens=8), timeout=120)[0]
        frames = client.ask([STORY.format(n) for n in range(16)], max_tokens=400, timeout_ms=300_000)
        request_id = next(frames).request_id
        frames.close()
        left = client.wait(request_id, timeout=60)
        assert {result.status for result in left} == {"cancelled"}
        results = client.wait(client.submit(["What is the capital of France?"] * 16, max_tokens=8), timeout=120)
    assert {result.text for result in results} == {alone.text}
    assert "Paris" in alone.text


def scraped(port: int, name: str) -> float:
    """A figure of a worker's metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_a_cancelled_question_has_one_forward_more_at_most(default_model: object) -> None:
    channels, paris = 8, "What is the capital of France?"
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with LocalNats() as nats:
        bus = {"bus__url": nats.url}
        room = {**bus, "core__kv_pages": str(channels * 512 // 16)}  # each can go on to its end
        with (
            service("aggregator_svc", aggregator__listen="127.0.0.1:0", **bus) as aggregator,
            service("inference_svc", inference__listen="127.0.0.1:0", metrics__port=str(port), **room) as worker,
        ):
            at = aggregator.ready()["address"]
            worker.ready()
            with (
                service("router_svc", router__listen="127.0.0.1:0", router__aggregator=at, **bus) as router,
                kev.Client(router.ready()["address"]) as client,
            ):
                alone = client.wait(client.submit(paris, max_tokens=8), timeout=120)[0]
                frames = client.ask([STORY.format(n) for n in range(channels)], max_tokens=400, timeout_ms=300_000)
                started: set[int] = set()
                while len(started) < channels:
                    frame = next(frames)
                    assert frame.result is None, "a story was too short to be cancelled"
                    started.add(frame.slot)
                frames.close()
                assert {result.status for result in client.wait(frame.request_id, timeout=60)} == {"cancelled"}
                until = time.monotonic() + 60
                while scraped(port, "kev_inference_cancel_forwards_count") < channels:
                    assert time.monotonic() < until, "not every channel was freed"
                    time.sleep(0.02)
                assert scraped(port, 'kev_inference_cancel_forwards_bucket{le="1.0"}') == channels
                after = client.wait(client.submit([paris] * channels, max_tokens=8), timeout=120)
    assert {result.text for result in after} == {alone.text}
    assert len({result.channel_id for result in after}) == channels


def test_a_killed_router_and_aggregator_come_back_at_their_addresses(up: Up) -> None:
    with kev.Client(up.router, retries=10) as client:
        request_id = client.submit([STORY.format(n) for n in range(4)], max_tokens=48, timeout_ms=300_000)
        for part in ("-m router_svc", "-m aggregator_svc"):
            os.kill(child_with(up.process.pid, part), signal.SIGKILL)
        for name in ("router", "aggregator"):
            up.process.wait_for_line(f"{name:<10} | is ready again")
        results = client.wait(request_id, timeout=200)
    assert [result.status for result in results] == ["answered"] * 4
