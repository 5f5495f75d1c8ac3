"""What the broker answers: JSON, or a status, or a refusal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nats.aio.msg import Msg

from kev.domain.errors import BusUnavailable, Overloaded

STORE_FAILED = 10077
_STREAM_GONE = 10059
LOST = (10071, 10164)
"""Somebody else was first; the second one with replicas."""
_NO_ROOM = (10023, 10028, 10047)


class ApiError(Exception):
    """The broker's refusal. ``err_code`` is its five-digit code."""

    def __init__(self, err_code: int, description: str) -> None:
        super().__init__(f"{description} ({err_code})")
        self.err_code = err_code
        self.description = description


class NoResponders(BusUnavailable):
    """Nobody listens to the subject: no such consumer, or a stream without a leader."""


class StreamGone(BusUnavailable):
    """The broker does not have the stream, or not any more."""


def seconds_of(stamp: str) -> float:
    """Unix seconds of an RFC 3339 stamp; nanoseconds are cut to what Python reads."""
    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{(fraction + '000000')[:6]}+00:00").timestamp()


def unavailable(where: str, why: object) -> BusUnavailable:
    """The error of a broker at ``where`` that did not answer."""
    return BusUnavailable(f"the broker at {where} is not available: {str(why).removeprefix('nats: ')}")


def answer_of(reply: Msg, where: str) -> dict[str, Any]:
    """The JSON of a reply; an empty one is empty.

    Raises:
        ApiError: the broker refused.
        Overloaded: it has no room on its disk.
        BusUnavailable: it cannot serve now; ``StreamGone`` if that is why.
    """
    if not reply.data:
        return {}
    answer: dict[str, Any] = json.loads(reply.data)
    if "error" in answer:
        raise _refusal(answer["error"], where)
    return answer


def _refusal(error: Mapping[str, Any], where: str) -> Exception:
    """One code means both that a lane is full and that the disk is; the text tells."""
    code, text = int(error.get("err_code", 0)), str(error.get("description", ""))
    lane_full = code == STORE_FAILED and "per subject" in text
    if code in _NO_ROOM or (code == STORE_FAILED and not lane_full and text.startswith("maximum")):
        return Overloaded(f"the broker has no room: {text}")
    if int(error.get("code", 0)) == 503 and not lane_full:
        return unavailable(where, text)
    if code == _STREAM_GONE:
        return StreamGone(f"the broker at {where} is not available: {text}")
    return ApiError(code, text)


def status_of(message: Msg) -> str:
    """The status header of a reply, e.g. ``404``; empty for a message."""
    return (message.headers or {}).get("Status", "")


def ended(replies: Sequence[Msg]) -> bool:
    """Whether the last of many replies says that there are no more."""
    return status_of(replies[-1]) != ""
