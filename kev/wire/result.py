"""Frames and results between the domain and the wire."""

from __future__ import annotations

from typing import Any

import msgspec

from kev.domain.outcome import Audit, ChosenToken, TokenLogprob
from kev.domain.result import PENDING, Frame, ResumePoint, SlotResult
from kev.v1 import frame_pb2 as pb
from kev.v1.aggregator_pb2 import StreamResponse
from kev.v1.router_pb2 import AskResponse
from kev.wire.enums import name_of, word_of


def result_to(result: SlotResult) -> pb.SlotResult:
    """The wire form of a slot's result."""
    return pb.SlotResult(
        request_id=result.request_id,
        slot=result.slot,
        id=result.id,
        status=name_of("SLOT_STATUS", result.status),
        finish_reason=name_of("FINISH_REASON", result.finish_reason),
        text=result.text,
        text_length=result.text_length,
        text_sha256=result.text_sha256,
        attempt=result.attempt,
        reason=result.reason,
        detail=result.detail,
        warnings=result.warnings,
        audit=pb.Audit(**msgspec.structs.asdict(result.audit)),
        logprobs=[_chosen_to(chosen) for chosen in result.logprobs],
    )


def result_from(message: pb.SlotResult) -> SlotResult:
    """A slot's result from the wire."""
    audit = {name: getattr(message.audit, name) for name in Audit.__struct_fields__}
    return SlotResult(
        request_id=message.request_id,
        slot=message.slot,
        id=message.id,
        status=word_of(pb.SlotStatus, message.status) or PENDING,
        finish_reason=word_of(pb.FinishReason, message.finish_reason) or "",
        text=message.text,
        text_length=message.text_length,
        text_sha256=message.text_sha256,
        attempt=message.attempt,
        reason=message.reason,
        detail=message.detail,
        warnings=tuple(message.warnings),
        audit=Audit(**audit),
        logprobs=tuple(_chosen_from(chosen) for chosen in message.logprobs),
    )


def _chosen_to(chosen: ChosenToken) -> pb.ChosenToken:
    return pb.ChosenToken(
        chosen=pb.TokenLogprob(**msgspec.structs.asdict(chosen.chosen)),
        top=[pb.TokenLogprob(**msgspec.structs.asdict(one)) for one in chosen.top],
    )


def _chosen_from(message: pb.ChosenToken) -> ChosenToken:
    return ChosenToken(_logprob_from(message.chosen), tuple(_logprob_from(one) for one in message.top))


def _logprob_from(message: pb.TokenLogprob) -> TokenLogprob:
    return TokenLogprob(message.token, message.text, message.logprob)


def frame_to(frame: Frame) -> pb.Frame:
    """The wire form of a frame."""
    return pb.Frame(**frame_fields(frame))


def frame_fields(frame: Frame) -> dict[str, Any]:
    """The fields of a frame's wire form that are set. Most frames are a piece of text and no more."""
    fields: dict[str, Any] = {
        "request_id": frame.request_id,
        "slot": frame.slot,
        "channel": frame.channel,
        "attempt": frame.attempt,
        "text_offset": frame.text_offset,
        "text": frame.text,
    }
    if frame.reset:
        fields["reset"] = True
    if frame.result is not None:
        fields["status"] = name_of("SLOT_STATUS", frame.result.status)
        fields["finish_reason"] = name_of("FINISH_REASON", frame.result.finish_reason)
        fields["result"] = result_to(frame.result)
    return fields


def frame_from(message: pb.Frame) -> Frame:
    """A frame from the wire."""
    return Frame(
        request_id=message.request_id,
        slot=message.slot,
        channel=message.channel,
        attempt=message.attempt,
        text_offset=message.text_offset,
        text=message.text,
        reset=message.reset,
        result=result_from(message.result) if message.HasField("result") else None,
    )


def frames_from(reply: StreamResponse | AskResponse) -> list[Frame]:
    """The frames of one reply of a stream."""
    return [frame_from(message) for message in (reply.frame, *reply.more)]


def resume_from(points: list[pb.ResumePoint]) -> tuple[ResumePoint, ...]:
    """Resume points from the wire."""
    return tuple(ResumePoint(slot=p.slot, attempt=p.attempt, text_offset=p.text_offset) for p in points)


def resume_to(points: tuple[ResumePoint, ...]) -> list[pb.ResumePoint]:
    """Resume points for the wire."""
    return [pb.ResumePoint(slot=p.slot, attempt=p.attempt, text_offset=p.text_offset) for p in points]
