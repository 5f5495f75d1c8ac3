"""What goes over the wire comes back the same; errors too."""

from __future__ import annotations

import grpc
import pytest
from grpc_status import rpc_status

from kev.bus.messages import decode, encode
from kev.domain import errors
from kev.domain.logprobs import MOST, MOST_TOP
from kev.domain.outcome import Audit, ChosenToken, FinishReason, Outcome, Status, TokenLogprob, text_digest
from kev.domain.question import Batch, Constraint, Isolation, Message, Priority, Question, ResultMode, Sampling
from kev.domain.result import Frame, ResumePoint, SlotResult
from kev.v1 import aggregator_pb2, frame_pb2, question_pb2, router_pb2
from kev.wire.question import batch_from, batch_to
from kev.wire.result import frame_from, frame_to, result_from, result_to, resume_from, resume_to
from kev.wire.status import error_from, status_of

FULL = Question(
    messages=(Message("system", "Sei kurz."), Message("user", "中文 🙂 \u200d")),
    id="label",
    max_tokens=7,
    timeout_ms=300,
    routing_key="key",
    priority=Priority.BACKGROUND,
    sampling=Sampling(temperature=0.7, top_k=5, top_p=0.9, seed=2**64 - 1, stop=("\n", "END")),
    truncate=True,
)


@pytest.mark.parametrize("isolation", [None, *Isolation])
@pytest.mark.parametrize("mode", [None, *ResultMode])
def test_batches(isolation: Isolation | None, mode: ResultMode | None) -> None:
    batch = Batch((FULL, Question(text="plain")), "r-1", "tenant", isolation, mode, max_parallel=3)
    assert batch_from(batch_to(batch), "tenant") == batch


def test_absent_is_absent_and_not_zero() -> None:
    sent = batch_to(Batch((Question(text="x"),)))
    assert batch_from(sent, "") == Batch((Question(text="x"),))
    sent.questions[0].max_tokens = 0
    assert batch_from(sent, "").questions[0].max_tokens == 0


def test_an_unknown_number_names_its_field() -> None:
    message = question_pb2.Batch(questions=[question_pb2.Question(), question_pb2.Question()])
    message.questions[1].priority = 77
    with pytest.raises(errors.InvalidArgument) as caught:
        batch_from(message, "")
    assert caught.value.field == "batch.questions[1].priority"
    assert "express, normal, background" in caught.value.allowed


def test_too_many_questions_are_refused_before_they_are_looked_at() -> None:
    message = question_pb2.Batch(questions=[question_pb2.Question(priority=77)] * 1001)
    with pytest.raises(errors.InvalidArgument) as caught:
        batch_from(message, "")
    assert caught.value.field == "batch.questions"


def test_millions_of_empty_items_cost_nothing_and_still_are_too_many() -> None:
    sampling = question_pb2.Sampling(stop=[""] * 1_000_000)
    one = question_pb2.Question(messages=[question_pb2.Message()] * 1_000_000, sampling=sampling)
    (question,) = batch_from(question_pb2.Batch(questions=[one]), "").questions
    assert 1_000 < len(question.messages) < 10_000
    assert 1_000 < len(question.sampling.stop) < 10_000


def _result(status: Status, reason: FinishReason) -> SlotResult:
    audit = Audit("w/3", "w", 3, 17, "spill_ring", 1, 2, 3, 0.5, 1.25, 10, 20, 2, 30, "strict", "native", "avx2", "d")
    text = "é🙂"
    return SlotResult.of(
        Outcome(
            "r", "rid", 4, status, reason, "q", text, 2, text_digest(text), 2, "why", "in words", ("length",), audit
        )
    )


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("reason", FinishReason)
def test_results_and_last_frames(status: Status, reason: FinishReason) -> None:
    result = _result(status, reason)
    assert result_from(result_to(result)) == result
    frame = Frame("r", 4, "w/3", 2, 1, "🙂", reset=True, result=result)
    assert frame_from(frame_to(frame)) == frame
    assert frame_to(frame).status == result_to(result).status


def test_pending_results_and_plain_frames() -> None:
    pending = SlotResult("r", 4, "q")
    assert result_from(result_to(pending)) == pending
    assert result_to(pending).status == frame_pb2.SLOT_STATUS_PENDING
    frame = Frame("r", 4, "w/3", 1, 0, "text")
    assert frame_from(frame_to(frame)) == frame


def test_resume_points() -> None:
    points = (ResumePoint(0, 1, 5), ResumePoint(9, 3, 0))
    assert resume_from(resume_to(points)) == points


def _over_the_wire(error: BaseException) -> errors.KevError:
    status = rpc_status.to_status(status_of(error))
    trailing = grpc.aio.Metadata(*status.trailing_metadata)
    return error_from(grpc.aio.AioRpcError(status.code, grpc.aio.Metadata(), trailing, status.details))


@pytest.mark.parametrize("row", errors.TABLE, ids=lambda row: row.reason)
def test_every_error_of_the_table_comes_back_as_itself(row: errors.ErrorRow) -> None:
    two_words = (errors.InvalidArgument,)
    error = row.error("field", "what") if row.error in two_words else row.error("what")
    back = _over_the_wire(error)
    assert type(back) is row.error
    assert str(back) == str(error)
    assert status_of(error).code == grpc.StatusCode[row.grpc].value[0]


def test_details_of_errors() -> None:
    full = _over_the_wire(errors.Overloaded("full", 1234))
    assert isinstance(full, errors.Overloaded)
    assert full.retry_after_ms == 1234
    bad = _over_the_wire(errors.InvalidArgument("a.b", "must be c"))
    assert isinstance(bad, errors.InvalidArgument)
    assert (bad.field, bad.allowed) == ("a.b", "must be c")


def test_a_long_error_is_cut_so_that_it_fits_into_headers() -> None:
    for error in (errors.NotFound("x" * 1_000_000), errors.InvalidArgument("a", "x" * 1_000_000)):
        status = status_of(error)
        assert status.ByteSize() < 4_000
        assert status.message.endswith("x…")


def test_an_error_outside_the_table_is_internal_and_does_not_tell() -> None:
    back = _over_the_wire(ZeroDivisionError("secret"))
    assert type(back) is errors.KevError
    assert "secret" not in str(back)
    assert str(back).startswith("INTERNAL: internal error ")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.BusUnavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.TooSlow),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.KevError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.KevError),
    ],
)
def test_grpcs_own_statuses(code: grpc.StatusCode, kind: type[errors.KevError]) -> None:
    bare = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "words")
    back = error_from(bare)
    assert type(back) is kind
    assert "words" in str(back)


@pytest.mark.parametrize(
    "constraint",
    [None, Constraint(choices=("yes", "no")), Constraint(json_schema='{"type":"object"}'), Constraint(regex="a|b")],
)
def test_constraints_and_what_changes_logits(constraint: Constraint | None) -> None:
    sampling = Sampling(
        min_p=0.25,
        repetition_penalty=1.5,
        presence_penalty=-0.5,
        frequency_penalty=0.75,
        logit_bias={0: 1.0, 49_151: -100.0},
        logprobs=0,
    )
    batch = Batch((Question(text="x", sampling=sampling, constraint=constraint),))
    assert batch_from(batch_to(batch), "") == batch


def test_log_probabilities_come_back_with_their_bytes() -> None:
    chosen = TokenLogprob(5, b"\xf0\x9f", -0.123456789012345)
    logprobs = (ChosenToken(chosen, (chosen, TokenLogprob(0, b"", -1e300))), ChosenToken(TokenLogprob(7, b" a", 0.0)))
    result = SlotResult("r", 3, status="answered", text="x", logprobs=logprobs)
    assert result_from(result_to(result)) == result
    outcome = Outcome("r", "rid", 0, Status.ANSWERED, FinishReason.STOP, logprobs=logprobs)
    assert decode(encode(outcome), Outcome) == outcome


def test_the_most_log_probabilities_fit_into_a_message_of_the_broker() -> None:
    long = TokenLogprob(49_151, b"x" * 64, -12.3456789)
    per_token = ChosenToken(long, (long,) * MOST_TOP)
    outcome = Outcome(
        "r" * 128, "rid", 999, Status.ANSWERED, FinishReason.STOP, logprobs=(per_token,) * (MOST // (MOST_TOP + 1))
    )
    assert len(encode(outcome)) < 4 << 20


def test_a_reply_of_the_aggregators_stream_is_one_of_ask_unread() -> None:
    one, other = (kind.DESCRIPTOR for kind in (aggregator_pb2.StreamResponse, router_pb2.AskResponse))
    fields = [
        {(field.number, field.name, field.type, field.is_repeated, field.message_type) for field in kind.fields}
        for kind in (one, other)
    ]
    assert fields[0] == fields[1]
