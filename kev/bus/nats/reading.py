"""Reading records from a stream: one from its leader, many at once from any replica."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

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
        replies = await link.gather(f"$JS.API.DIRECT.GET.{stream}", json.dumps(request).encode(), ended)
        if not replies:
            raise BusUnavailable(f"the stream {stream} has no leader")
        *messages, end = replies
        if status_of(end) == "413":
            return None
        for message in messages:
            headers = message.headers or {}
            records[headers["Nats-Subject"]] = (int(headers["Nats-Sequence"]), message.data)
        rest = end.headers or {}
        if status_of(end) == "404" or int(rest.get("Nats-Num-Pending", "0")) == 0:
            return records
        request |= {"seq": int(rest["Nats-Last-Sequence"]) + 1, "up_to_seq": int(rest["Nats-UpTo-Sequence"])}


async def all_of(link: Link, stream: str, subject: str) -> dict[str, tuple[int, bytes]]:
    """Every record that a subject with wildcards fits, with its sequence, however many: page by page.

    It may come from a replica that is a moment behind.
    """
    records: dict[str, tuple[int, bytes]] = {}
    first = 1
    while True:
        request = {"seq": first, "batch": _PAGE, "next_by_subj": subject}
        replies = await link.gather(f"$JS.API.DIRECT.GET.{stream}", json.dumps(request).encode(), ended)
        if not replies:
            raise BusUnavailable(f"the stream {stream} has no leader")
        *messages, end = replies
        for message in messages:
            headers = message.headers or {}
            records[headers["Nats-Subject"]] = (int(headers["Nats-Sequence"]), message.data)
        rest = end.headers or {}
        if status_of(end) == "404" or int(rest.get("Nats-Num-Pending", "0")) == 0:
            return records
        first = int(rest["Nats-Last-Sequence"]) + 1
