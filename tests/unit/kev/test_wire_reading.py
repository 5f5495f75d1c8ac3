"""What a service relies on: bytes that are no request are the caller's mistake, and a flood of parts is not read."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kev.domain.errors import InvalidArgument
from kev.v1 import question_pb2, router_pb2, router_pb2_grpc
from kev.wire.options import open_channel
from kev.wire.reading import MOST_PARTS, PLAIN_BYTES, has_more_parts, reader_of
from kev.wire.serving import GrpcHost
from kev.wire.status import error_from

NAME = "kev.v1.RouterService"
SUBMIT = router_pb2.SubmitRequest


def _batch(questions: int, **fields: Any) -> bytes:
    one = question_pb2.Question(**fields)
    return SUBMIT(batch=question_pb2.Batch(questions=[one] * questions)).SerializeToString()


def _parts(data: bytes, kind: Any = SUBMIT) -> int:
    """How many parts are counted."""
    return next(most for most in range(10_000) if not has_more_parts(data, kind.DESCRIPTOR, most))


def test_fields_and_items_are_counted_at_any_depth() -> None:
    assert _parts(_batch(0)) == 1  # the batch
    assert _parts(_batch(3)) == 1 + 3
    assert _parts(_batch(2, text="a b c", max_tokens=300)) == 1 + 2 + 2 * 2
    assert _parts(_batch(1, messages=[question_pb2.Message(role="user", content="x")] * 5)) == 1 + 1 + 5 + 5 * 2
    # A constraint, its list, two strings; a sampling, one bias with id and number.
    constraint = question_pb2.Constraint(choices=question_pb2.Choices(choices=["yes", "no"]))
    sampling = question_pb2.Sampling(temperature=1, logit_bias={7: 1.5})
    assert _parts(_batch(1, constraint=constraint)) == 1 + 1 + 2 + 2
    assert _parts(_batch(1, sampling=sampling)) == 1 + 1 + 1 + 2 + 2


def test_numbers_of_a_list_count_each() -> None:
    cancel = router_pb2.CancelRequest(request_id="r", slots=range(100))
    assert _parts(cancel.SerializeToString(), router_pb2.CancelRequest) == 2 + 100


def test_what_a_text_holds_is_not_counted() -> None:
    assert _parts(_batch(1, text="\n\0" * 5_000)) == 3


@given(st.binary(max_size=300))
def test_any_bytes_are_counted(data: bytes) -> None:
    assert not has_more_parts(data, SUBMIT.DESCRIPTOR, 10_000)
    assert has_more_parts(data, SUBMIT.DESCRIPTOR, 0) == bool(data)


async def test_a_flood_of_empty_questions_is_not_read() -> None:
    read = reader_of(SUBMIT.FromString)
    many = await read(_batch(PLAIN_BYTES)).read()
    assert len(many.batch.questions) == PLAIN_BYTES  # the router says how many a batch may have
    with pytest.raises(InvalidArgument, match="at most 1,000,000"):
        await read(_batch(MOST_PARTS)).read()


async def test_a_long_batch_arrives_whole() -> None:
    data = _batch(1_000, text="a question " * 70, max_tokens=3)
    assert len(data) > PLAIN_BYTES
    assert await reader_of(SUBMIT.FromString)(data).read() == SUBMIT.FromString(data)


class Counting(router_pb2_grpc.RouterServiceServicer):
    async def Submit(self, request: Any, context: Any) -> Any:
        return router_pb2.SubmitResponse(slots=len(request.batch.questions))

    async def Ask(self, request: Any, context: Any) -> Any:
        yield router_pb2.AskResponse()


@pytest.mark.parametrize("bytes_", [b"\xff\xff\xff\xff", b"\x0a\x06\x0a\x04\x0a\x02\xff\xfe", _batch(MOST_PARTS)])
async def test_what_cannot_be_read_is_the_callers_mistake(bytes_: bytes) -> None:
    host = GrpcHost("127.0.0.1:0", [NAME])
    router_pb2_grpc.add_RouterServiceServicer_to_server(Counting(), host.server)
    async with open_channel(await host.start()) as channel:
        for call in (channel.unary_unary(f"/{NAME}/Submit"), channel.unary_stream(f"/{NAME}/Ask")):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await _first(call(bytes_, timeout=20))
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert isinstance(error_from(caught.value), InvalidArgument)
    await host.stop(0)


async def _first(call: Any) -> Any:
    return await (call.read() if isinstance(call, grpc.aio.UnaryStreamCall) else call)
