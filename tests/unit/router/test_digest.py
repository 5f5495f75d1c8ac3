"""The same question again has the same digest, any other has another one."""

from __future__ import annotations

import asyncio

import msgspec

from kev.domain.question import Batch, Constraint, Isolation, Message, Question, Sampling
from router_svc.digest import digest_of

GOOD = Question(text="Why is the sky blue?")


async def test_the_digest_covers_what_is_asked_and_nothing_else() -> None:
    batch = Batch(questions=(GOOD, GOOD))
    same = await digest_of(batch)
    assert await digest_of(msgspec.structs.replace(batch, request_id="other", tenant="other")) == same
    changes = [
        {"questions": (GOOD,)},
        {"isolation": Isolation.STRICT},
        {"max_parallel": 2},
        {"questions": (GOOD, msgspec.structs.replace(GOOD, sampling=Sampling(seed=1)))},
        {"questions": (GOOD, msgspec.structs.replace(GOOD, truncate=True))},
        {"questions": (GOOD, Question(messages=(Message("user", GOOD.text),)))},
    ]
    digests = {await digest_of(msgspec.structs.replace(batch, **change)) for change in changes}
    assert len(digests | {same}) == len(changes) + 1


async def test_the_digest_is_the_same_in_every_release() -> None:
    batch = Batch(questions=(Question(text="One?", id="a", max_tokens=5), Question(text="Zwei £?")))
    assert await digest_of(batch) == "f7e730fe2a6ec0daa3f8fa9d60f96a7ba07ffc82ca142a75ca8ddb703b10a2ed"


async def test_a_constraint_and_penalties_are_part_of_the_digest() -> None:
    asked = [
        GOOD,
        msgspec.structs.replace(GOOD, constraint=Constraint(regex="a")),
        msgspec.structs.replace(GOOD, constraint=Constraint(choices=("a",))),
        msgspec.structs.replace(GOOD, sampling=Sampling(logit_bias={3: 1.0, 2: 1.0})),
        msgspec.structs.replace(GOOD, sampling=Sampling(logprobs=0)),
    ]
    assert len({await digest_of(Batch(questions=(one,))) for one in asked}) == len(asked)
    turned = msgspec.structs.replace(GOOD, sampling=Sampling(logit_bias={2: 1.0, 3: 1.0}))
    assert await digest_of(Batch(questions=(turned,))) == await digest_of(Batch(questions=(asked[3],)))


async def test_the_digest_of_a_large_batch_leaves_the_loop_to_others() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    await digest_of(Batch(questions=(Question(text="x" * 10_000),) * 100))
    beside.cancel()
    assert turns > 10
