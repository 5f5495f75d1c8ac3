"""The aggregator over the real broker, and as a process."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aggregator_lab import Producer, joined, until
from nats_support import connect, when_back

from aggregator_svc.aggregator import Aggregator, wall_ms
from kev.bus.messages import Piece
from kev.bus.nats import NatsBus
from kev.bus.nats.server import LocalNats
from kev.client import AsyncClient
from kev.config.settings import Settings
from kev.domain.ids import new_request_id
from kev.domain.result import Frame
from kev.wire.process import read_ready


@pytest.fixture
async def buses(server: LocalNats) -> AsyncIterator[tuple[NatsBus, NatsBus]]:
    reading, writing = await connect(server), await connect(server)
    yield reading, writing
    await reading.close()
    await writing.close()


async def _gather(frames: AsyncIterator[Frame], into: list[Frame]) -> None:
    async for frame in frames:
        into.append(frame)  # noqa: PERF401  # others look at the list while it grows


async def test_a_stream_over_the_broker(buses: tuple[NatsBus, NatsBus]) -> None:
    reading, writing = buses
    aggregator, producer, request_id = Aggregator(reading, Settings()), Producer(writing), new_request_id()
    await producer.open(request_id, 40, now_ms=wall_ms())
    frames: list[Frame] = []
    streaming = asyncio.create_task(_gather(aggregator.stream("", request_id), frames))
    waiting = asyncio.create_task(aggregator.results("", request_id, None))
    follower = aggregator._followers
    await until(lambda: follower and next(iter(follower.values())).opened.is_set())
    words = ["Lorem", " ipsum", " dölor", " 🙂"]
    for attempt in (1, 2):
        offset = 0
        for word in words:
            for slot in range(40):
                await producer.say(request_id, slot, offset, word, attempt)
            offset += len(word)
    for slot in reversed(range(40)):
        await producer.end(request_id, slot, "".join(words), 2)
    await streaming
    assert joined(frames) == dict.fromkeys(range(40), "Lorem ipsum dölor 🙂")
    assert any(not frame.result for frame in frames), "it was live"
    results = await waiting
    assert results.complete
    assert [result.slot for result in results.results] == list(range(40))
    await aggregator.close()


async def test_a_late_reader_gets_the_workers_text_then_the_rest(buses: tuple[NatsBus, NatsBus]) -> None:
    reading, writing = buses
    aggregator, producer, request_id = Aggregator(reading, Settings()), Producer(writing), new_request_id()
    rid = await producer.open(request_id, 1, now_ms=wall_ms() - 2000)
    await producer.say(request_id, 0, 0, "long ago")
    texts = await writing.on_catch_up(lambda asked: [Piece(0, 1, "w/0", 0, "long ago")] if asked == rid else [])
    stream = aggregator.stream("", request_id)
    frames = [await anext(stream)]
    await producer.say(request_id, 0, 8, ", and now")
    frames.append(await anext(stream))
    await producer.end(request_id, 0, "long ago, and now.")
    frames += [frame async for frame in stream]
    assert [frame.text for frame in frames] == ["long ago", ", and now", "."]
    await texts.close()
    await aggregator.close()


async def test_reading_times_out_a_slot_once_for_all_replicas(buses: tuple[NatsBus, NatsBus]) -> None:
    one, other = (Aggregator(bus, Settings()) for bus in buses)
    request_id = new_request_id()
    await Producer(buses[0]).open(request_id, 3, now_ms=wall_ms() - 5000, timeout_ms=1000)
    seen = await asyncio.gather(*[aggregator.results("", request_id, 20) for aggregator in (one, other) * 3])
    assert {tuple(r.status for r in results.results) for results in seen} == {("timed_out",) * 3}
    assert len({results.results for results in seen}) == 1, "all replicas give the same record"
    for aggregator in (one, other):
        await aggregator.close()


async def test_a_stream_outlives_the_broker(tmp_path: Path) -> None:
    with LocalNats(tmp_path / "nats") as server:
        reading, writing = await connect(server), await connect(server)
        aggregator, producer, request_id = Aggregator(reading, Settings()), Producer(writing), new_request_id()
        await producer.open(request_id, 2, now_ms=wall_ms())
        frames: list[Frame] = []
        streaming = asyncio.create_task(_gather(aggregator.stream("", request_id), frames))
        await until(lambda: aggregator._followers and next(iter(aggregator._followers.values())).opened.is_set())
        await producer.say(request_id, 0, 0, "before")
        await producer.end(request_id, 1, "first")
        await until(lambda: len(frames) == 2)
        server.stop(kill=True)
        server.start()
        await when_back(lambda: producer.end(request_id, 0, "before and after"))
        await streaming
        assert joined(frames) == {0: "before and after", 1: "first"}
        await aggregator.close()
        await reading.close()
        await writing.close()


# -- as a process --------------------------------------------------------------------
async def _start(*flags: str) -> asyncio.subprocess.Process:
    sets = [word for flag in flags for word in ("--set", flag)]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "aggregator_svc",
        *sets,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def _ready(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    facts = read_ready(line)
    assert facts is not None, line
    assert facts["service"] == "aggregator"
    return facts["address"]


async def test_the_process_serves_and_stops_cleanly(server: LocalNats, buses: tuple[NatsBus, NatsBus]) -> None:
    bus = [f"bus.url={server.url}", "bus.ack_wait_ms=1000", "bus.lease_ms=1000"]
    process = await _start("aggregator.listen=127.0.0.1:0", *bus)
    try:
        address = await _ready(process)
        producer, request_id = Producer(buses[1]), new_request_id()
        await producer.open(request_id, 1, now_ms=wall_ms())
        await producer.end(request_id, 0, "served")
        async with AsyncClient(address) as client:
            assert [result.text for result in await client.wait(request_id, 20)] == ["served"]
        second = await _start(f"aggregator.listen={address}", *bus)
        _, told = await second.communicate()
        assert second.returncode == 1
        assert f"error: cannot listen on {address}: Address already in use" in told.decode().splitlines()
    finally:
        process.send_signal(signal.SIGTERM)
        _, told = await process.communicate()
    assert process.returncode == 0, told.decode()


@pytest.mark.parametrize(
    ("flag", "line"),
    [
        ("bus.url=nats://127.0.0.1:1", "error: no broker at 127.0.0.1:1"),
        ("aggregator.mode=any", "error: aggregator.mode: "),
        ("aggregator.lisen=x", "error: aggregator.lisen: unknown key"),
    ],
)
async def test_the_process_says_in_one_line_why_it_cannot_start(flag: str, line: str) -> None:
    process = await _start(flag)
    out, told = await process.communicate()
    assert process.returncode == 1
    assert out == b""
    lines = told.decode().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith(line)
