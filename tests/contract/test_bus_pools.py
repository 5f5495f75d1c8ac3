"""Context pools: whole, of one tenant, until deleted or expired."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest
from bus_labs import Lab
from bus_makers import now_ms, pool

from kev.domain.errors import BusUnavailable, InvalidArgument
from kev.domain.ids import pool_key

_TENANTS = (f"tenant-{number}" for number in itertools.count(1))


async def test_a_pool_arrives_as_it_was_put(lab: Lab):
    router, worker = await lab.connect(), await lab.connect()
    sent = pool("manual")
    assert await router.put_pool(sent) is False
    found = await worker.pool(sent.info.key)
    assert found == sent
    assert found.ids().tolist() == list(range(5, 45))
    assert await worker.pool_info(sent.info.key) == sent.info
    assert (sent.info.ref.key, sent.info.ref.digest, sent.info.ref.tokens) == (found.info.key, found.info.digest, 40)


async def test_there_is_no_pool_that_nobody_put(bus):
    key = pool_key("tests", "nothing")
    assert await bus.pool(key) is None
    assert await bus.pool_info(key) is None
    assert await bus.pools(next(_TENANTS)) == ()
    assert await bus.delete_pool(key) is False


async def test_a_long_pool_is_whole(bus):
    """Longer than one message of the broker."""
    sent = pool("library", count=2_500_000)
    await bus.put_pool(sent)
    assert await bus.pool(sent.info.key) == sent


async def test_a_name_that_is_used_again_is_the_new_pool(bus):
    old, new = pool("manual", count=200_000), pool("manual", count=30, start=9)
    assert [await bus.put_pool(old), await bus.put_pool(new), await bus.put_pool(new)] == [False, True, True]
    assert await bus.pool(old.info.key) == new
    assert await bus.pools("tests") == (new.info,)


async def test_a_tenant_sees_its_own_pools_by_name(lab: Lab):
    one, two = next(_TENANTS), next(_TENANTS)
    router, other = await lab.connect(), await lab.connect()
    mine = [pool(name, one, start=start) for start, name in enumerate(["zebra", "apple", "m.n:o_p-q"])]
    for sent in [*mine, pool("apple", two, start=100)]:
        await router.put_pool(sent)
    assert [info.name for info in await other.pools(one)] == ["apple", "m.n:o_p-q", "zebra"]
    assert [info.name for info in await other.pools(two)] == ["apple"]
    assert await other.pool(pool_key(one, "apple")) == mine[1]
    assert (await other.pool(pool_key(two, "apple"))).ids()[0] == 100


async def test_a_deleted_pool_is_gone_and_its_name_is_free(bus):
    sent = pool("manual")
    await bus.put_pool(sent)
    assert await bus.delete_pool(sent.info.key) is True
    assert await bus.pool(sent.info.key) is None
    assert await bus.pools("tests") == ()
    assert await bus.delete_pool(sent.info.key) is False
    assert await bus.put_pool(sent) is False
    assert await bus.pool(sent.info.key) == sent


async def test_a_pool_ends_at_its_stamp(lab: Lab, bus):
    short = pool("short", expires_ms=now_ms() + 400)
    for sent in (short, pool("long", expires_ms=now_ms() + 60_000), pool("endless")):
        await bus.put_pool(sent)
    assert await bus.pool(short.info.key) == short
    await lab.pass_time(0.6)
    assert await bus.pool(short.info.key) is None
    assert await bus.pool_info(short.info.key) is None
    assert [info.name for info in await bus.pools("tests")] == ["endless", "long"]
    assert await bus.delete_pool(short.info.key) is False
    assert await bus.put_pool(pool("short")) is False


async def test_writers_at_the_same_time_leave_one_whole_pool(lab: Lab):
    """Whoever wins, dies or is late: a reader finds all tokens of one of them."""
    buses = [await lab.connect() for _ in range(3)]
    sent = [pool("contended", count=150_000 + number, start=number) for number in range(6)]

    async def put(number: int) -> None:
        with contextlib.suppress(BusUnavailable):  # lost too often
            await buses[number % 3].put_pool(sent[number])

    async def read() -> None:
        for _ in range(10):
            assert await buses[0].pool(sent[0].info.key) in [None, *sent]

    await asyncio.gather(read(), *(put(number) for number in range(6)))
    found = await buses[1].pool(sent[0].info.key)
    assert found in sent
    await asyncio.gather(put(0), buses[1].delete_pool(sent[0].info.key), put(1))
    assert await buses[2].pool(sent[0].info.key) in [None, *sent]


async def test_many_pools_of_one_tenant(bus):
    tenant = next(_TENANTS)
    await asyncio.gather(*(bus.put_pool(pool(f"p{number:04}", tenant, count=1)) for number in range(1100)))
    assert [info.name for info in await bus.pools(tenant)] == [f"p{number:04}" for number in range(1100)]


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"key": pool_key("other", "manual")}, "key"), ({"tokens": 41}, "tokens"), ({"digest": "0" * 64}, "digest")],
)
async def test_a_pool_that_contradicts_itself_is_an_error(bus, changes, field):
    with pytest.raises(InvalidArgument, match=f"pool.{field}"):
        await bus.put_pool(pool("manual", **changes))


async def test_a_closed_bus_has_no_pools(bus):
    sent = pool("manual")
    await bus.close()
    for call in (bus.put_pool(sent), bus.pool(sent.info.key), bus.pools("tests"), bus.delete_pool(sent.info.key)):
        with pytest.raises(BusUnavailable):
            await call
