"""Reading records from a stream: one from its leader, many at once from any replica."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence

from nats.aio.msg import Msg

from kev.bus.nats.link import Link
from kev.bus.nats.replies import ApiError, ended, status_of
from kev.domain.errors import BusUnavailable

_NO_MESSAGE = 10037
_PAGE = 1000


async def last_at_leader(link: Link, stream: str, subject: str) -> tuple[int, bytes] | None:
    """Sequence and data of the last record of a subject, from the leader: never stale."""
    try:
        answer = await link.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
    except ApiError as error:
        if error.err_code != _NO_MESSAGE:
            raise
        return None
    message = answer["message"]
    return int(message["seq"]), base64.b64decode(message.get("data", ""))


async def last_of_many(link: Link, stream: str, subjects: Sequence[str]) -> dict[str, tuple[int, bytes]] | None:
    """The last record of every subject, with its sequence; None if there are too many for one call.

    It may come from a replica that is a moment behind. The broker ends an
    answer early when it gets large; then it says up to where it came, and is
    asked for the rest.
    """
    records: dict[str, tuple[int, bytes]] = {}
    request: dict[str, object] = {"multi_last": list(subjects)}
    while True:
        messages, end = await _read(link, stream, request)
        if status_of(end) == "413":
            return None
        records |= _by_subject(messages)
        if _is_last(end):
            return records
        rest = end.headers or {}
        request |= {"seq": int(rest["Nats-Last-Sequence"]) + 1, "up_to_seq": int(rest["Nats-UpTo-Sequence"])}


async def all_of(link: Link, stream: str, subject: str) -> dict[str, tuple[int, bytes]]:
    """Every record that a subject with wildcards fits, with its sequence, however many: page by page.

    It may come from a replica that is a moment behind.
    """
    records: dict[str, tuple[int, bytes]] = {}
    first = 1
    while True:
        messages, end = await _read(link, stream, {"seq": first, "batch": _PAGE, "next_by_subj": subject})
        records |= _by_subject(messages)
        if _is_last(end):
            return records
        first = int((end.headers or {})["Nats-Last-Sequence"]) + 1


async def _read(link: Link, stream: str, request: dict[str, object]) -> tuple[list[Msg], Msg]:
    """One direct get of many records: them, and the message that ends the answer."""
    replies = await link.gather(f"$JS.API.DIRECT.GET.{stream}", json.dumps(request).encode(), ended)
    if not replies:
        link.gone()
        raise BusUnavailable(f"the stream {stream} has no leader")
    *messages, end = replies
    return messages, end


def _by_subject(messages: Iterable[Msg]) -> dict[str, tuple[int, bytes]]:
    headed = ((message.headers or {}, message.data) for message in messages)
    return {headers["Nats-Subject"]: (int(headers["Nats-Sequence"]), data) for headers, data in headed}


def _is_last(end: Msg) -> bool:
    """Whether nothing is left to ask for."""
    return status_of(end) == "404" or int((end.headers or {}).get("Nats-Num-Pending", "0")) == 0
