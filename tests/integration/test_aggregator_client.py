"""The clients against real gRPC: one address, resume, retries, clean-up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from aggregator_lab import Cluster, cluster, joined, until

from aggregator_svc.aggregator import wall_ms
from kev.bus.messages import Piece
from kev.client import AsyncClient, Client
from kev.domain.errors import AlreadyUsed, BusUnavailable, InvalidArgument, KevError, NotFound, Overloaded
from kev.domain.question import Isolation, Priority, ResultMode
from kev.domain.result import Frame, ResumePoint


@pytest.fixture
async def lab() -> AsyncIterator[Cluster]:
    async with cluster(wall_ms) as made:
        yield made


@pytest.fixture(params=["one address", "two addresses"])
async def client(request: pytest.FixtureRequest, lab: Cluster) -> AsyncIterator[AsyncClient]:
    aggregator = lab.aggregator_address if request.param == "two addresses" else None
    async with AsyncClient(lab.router_address, aggregator=aggregator) as made:
        yield made


async def _all(frames: AsyncIterator[Frame], into: list[Frame] | None = None) -> list[Frame]:
    gathered = [] if into is None else into
    async for frame in frames:
        gathered.append(frame)  # others look at the list while it grows
    return gathered


async def test_submit_then_wait(lab: Cluster, client: AsyncClient) -> None:
    request_id = await client.submit(
        ["one", {"text": "two", "id": 7, "max_tokens": 3}],
        isolation="strict",
        mode="priority",
        max_parallel=1,
        max_tokens=9,
        priority="express",
        stop="\n",
    )
    (batch,) = lab.door.batches
    assert (batch.isolation, batch.mode, batch.max_parallel) == (Isolation.STRICT, ResultMode.PRIORITY, 1)
    assert [(q.text, q.id, q.max_tokens) for q in batch.questions] == [("one", "", 9), ("two", "7", 3)]
    assert {(q.priority, q.sampling.stop) for q in batch.questions} == {(Priority.EXPRESS, ("\n",))}
    pending = await client.wait(request_id, timeout=0)
    assert [result.status for result in pending] == ["pending", "pending"]
    waiting = asyncio.create_task(client.wait(request_id))
    await until(lambda: lab.bus._feeds)
    await lab.producer.end(request_id, 1, "b")
    await lab.producer.end(request_id, 0, "a")
    assert [(r.slot, r.text, r.ok, r.channel_id, r.tokens) for r in await waiting] == [
        (0, "a", True, 0, 1),
        (1, "b", True, 1, 1),
    ]


async def test_a_wait_that_is_too_short_gives_pending(lab: Cluster, client: AsyncClient) -> None:
    request_id = await client.submit("one alone")
    (result,) = await client.wait(request_id, timeout=0.1)
    assert (result.status, result.ok) == ("pending", False)


async def test_ask_streams(lab: Cluster, client: AsyncClient) -> None:
    asking = asyncio.create_task(_all(client.ask(["one", "two"])))
    await until(lambda: lab.bus._feeds)
    request_id = lab.door.batches[0].request_id
    await lab.producer.say(request_id, 0, 0, "Hel")
    await lab.producer.end(request_id, 0, "Hello")
    await lab.producer.end(request_id, 1, "")
    assert joined(await asking) == {0: "Hello", 1: ""}


async def test_leaving_ask_reaches_the_router(lab: Cluster, client: AsyncClient) -> None:
    async with aclosing(client.ask("one")) as frames:
        first = asyncio.ensure_future(anext(frames))
        await until(lambda: lab.bus._feeds)
        request_id = lab.door.batches[0].request_id
        await lab.producer.say(request_id, 0, 0, "x")
        await first
    await until(lambda: lab.door.left == [request_id])
    await until(lambda: lab.idle)


async def test_an_ask_that_lost_its_router_goes_on(lab: Cluster, client: AsyncClient) -> None:
    lab.door.cut_ask_after = 1
    frames: list[Frame] = []
    asking = asyncio.create_task(_all(client.ask(["one", "two"]), frames))
    await until(lambda: lab.bus._feeds)
    request_id = lab.door.batches[0].request_id
    await lab.producer.say(request_id, 0, 0, "Hel")
    await until(lambda: lab.door.left)
    await lab.producer.say(request_id, 0, 3, "lo")
    await lab.producer.end(request_id, 0, "Hello")
    await lab.producer.end(request_id, 1, "two")
    await asking
    assert joined(frames) == {0: "Hello", 1: "two"}
    assert not any(frame.reset for frame in frames)


async def test_leaving_a_resumed_ask_cancels_what_is_open(lab: Cluster, client: AsyncClient) -> None:
    lab.door.cut_ask_after = 1
    async with aclosing(client.ask(["one", "two"])) as frames:
        first = asyncio.ensure_future(anext(frames))
        await until(lambda: lab.bus._feeds)
        request_id = lab.door.batches[0].request_id
        await lab.producer.end(request_id, 0, "a")
        await first
        await lab.bus.on_catch_up(lambda rid: [Piece(1, 1, "w/1", 0, "b")])
        assert (await anext(frames)).text == "b"
    results = await client.wait(request_id, timeout=0)
    assert [result.status for result in results] == ["answered", "cancelled"]


@pytest.mark.parametrize("status", ["restart", "drain"])
async def test_a_stream_survives_an_aggregator_that_comes_back(lab: Cluster, client: AsyncClient, status: str) -> None:
    request_id = await client.submit(["one", "two"])
    frames: list[Frame] = []
    reading = asyncio.create_task(_all(client.stream(request_id), frames))
    await until(lambda: lab.bus._feeds)
    await lab.producer.say(request_id, 0, 0, "Hel")
    await lab.producer.end(request_id, 1, "two")
    await until(lambda: len(frames) == 2)
    if status == "drain":
        await lab.aggregator.close()
    await lab.stop_aggregator()
    await lab.start_aggregator(lab.aggregator_address)
    await until(lambda: lab.bus._feeds)
    await lab.producer.end(request_id, 0, "Hello")
    await reading
    assert joined(frames) == {0: "Hello", 1: "two"}
    assert [frame.slot for frame in frames if frame.result] == [1, 0]


async def test_a_wait_survives_an_aggregator_that_comes_back(lab: Cluster, client: AsyncClient) -> None:
    request_id = await client.submit(["one"])
    waiting = asyncio.create_task(client.wait(request_id))
    await until(lambda: lab.bus._feeds)
    await lab.stop_aggregator()
    await lab.start_aggregator(lab.aggregator_address)
    await until(lambda: lab.bus._feeds)
    await lab.producer.end(request_id, 0, "one")
    assert (await waiting)[0].text == "one"


async def test_cancel(lab: Cluster, client: AsyncClient) -> None:
    request_id = await client.submit(["one", "two", "three"])
    assert await client.cancel(request_id, [1]) == (1,)
    assert await client.cancel(request_id) == (0, 2)
    assert {result.status for result in await client.wait(request_id)} == {"cancelled"}


async def test_errors_are_the_domains(lab: Cluster, client: AsyncClient) -> None:
    with pytest.raises(NotFound):
        await client.wait("none")
    with pytest.raises(NotFound):
        await anext(client.stream("none"))
    with pytest.raises(InvalidArgument, match=r"queries\[1\]\.max_tokens"):
        await client.submit(["fine", {"text": "x", "max_tokens": 0}])
    with pytest.raises(InvalidArgument, match="slots: must be a whole number"):
        await client.cancel("none", [-1])
    with pytest.raises(InvalidArgument, match=r"resume\.text_offset: must be a whole number"):
        await anext(client.stream("none", [ResumePoint(0, 1, -1)]))
    lab.door.refusals = [AlreadyUsed("req-1 names another batch")]
    with pytest.raises(AlreadyUsed, match="another batch"):
        await client.submit("x", request_id="req-1")


async def test_no_room_is_told_at_once_or_retried_if_asked(lab: Cluster) -> None:
    lab.door.refusals = [Overloaded("full", 10)]
    async with AsyncClient(lab.router_address) as client:
        with pytest.raises(Overloaded) as caught:
            await client.submit("x")
        assert caught.value.retry_after_ms == 10
        lab.door.refusals = [Overloaded("full", 10)]
        with pytest.raises(Overloaded):
            await anext(client.ask("x"))
    async with AsyncClient(lab.router_address, retries=2) as client:
        lab.door.refusals = [Overloaded("full", 10), Overloaded("full", 10)]
        await client.submit("x", request_id="again")
        assert [batch.request_id for batch in lab.door.batches] == ["again"]
        lab.door.refusals = [Overloaded("full", 10)]
        asking = asyncio.create_task(_all(client.ask("x", request_id="asked")))
        await until(lambda: lab.bus._feeds)
        await lab.producer.end("asked", 0, "yes")
        assert joined(await asking) == {0: "yes"}


async def test_nobody_at_the_address_is_one_clear_error() -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(BusUnavailable, match="no answer from the service"):
            await client.submit("x")
        with pytest.raises(BusUnavailable, match="no answer from the service"):
            await anext(client.ask("x"))


async def test_the_synchronous_client(lab: Cluster) -> None:
    def use() -> tuple[dict[int, str], list[str], tuple[int, ...]]:
        with Client(lab.router_address) as client:
            frames = list(client.ask(["one", "two"], request_id="asked"))
            request_id = client.submit(["three"], request_id="submitted")
            cancelled = client.cancel(request_id)
            streamed = [frame.result.status for frame in client.stream(request_id) if frame.result]
            assert [result.status for result in client.wait(request_id)] == streamed
            with pytest.raises(NotFound):
                client.wait("none")
            for _ in client.ask("left", request_id="left"):
                break
        return joined(frames), streamed, cancelled

    using = asyncio.create_task(asyncio.to_thread(use))
    await until(lambda: lab.bus._feeds)
    await lab.producer.end("asked", 0, "a")
    await lab.producer.end("asked", 1, "b")
    await until(lambda: lab.door.batches[-1].request_id == "left" and lab.bus._feeds)
    await lab.producer.say("left", 0, 0, "x")
    assert await using == ({0: "a", 1: "b"}, ["cancelled"], (0,))
    await until(lambda: lab.door.left == ["left"])


async def test_a_closed_synchronous_client_says_so(lab: Cluster) -> None:
    client = Client(lab.router_address)
    client.close()
    client.close()
    with pytest.raises(KevError, match="closed"):
        client.submit("x")
