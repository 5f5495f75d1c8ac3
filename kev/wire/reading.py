"""A request from its bytes. Mistakes in them are the caller's; their parts are counted before they take memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from kev.domain.errors import InvalidArgument

Parse: TypeAlias = Callable[[bytes], Any]
PLAIN_BYTES = 64 * 1024
"""Requests up to this size are read at once: even of empty parts they do not hold many."""
MOST_PARTS = 1_000_000
"""Fields and items of lists in one request. An empty question has two bytes on the wire and a hundred in memory:
64 MiB of them would take gigabytes, and hold up the event loop for many seconds."""
_NO_NUMBERS = (FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_MESSAGE)


@dataclass(frozen=True, slots=True)
class Unread:
    """A request that is still bytes, because it is large, or because it is none."""

    data: bytes
    parse: Parse

    async def read(self) -> Any:
        """The request. Counting is done in a thread.

        Raises:
            InvalidArgument: it has too many parts, or cannot be read.
        """
        kind = self.parse.__self__.DESCRIPTOR  # type: ignore[attr-defined]  # the message's class
        if len(self.data) > PLAIN_BYTES and await asyncio.to_thread(has_more_parts, self.data, kind, MOST_PARTS):
            allowed = f"must have at most {MOST_PARTS:,} fields and items of lists together; split the batch"
            raise InvalidArgument("request", allowed)
        try:
            return self.parse(self.data)
        except DecodeError as error:
            raise InvalidArgument("request", f"must be a {kind.full_name}; {error}") from None


def reader_of(parse: Parse) -> Parse:
    """``parse``, the ``FromString`` of a message, but never raising: what it leaves is an ``Unread``."""

    def read(data: bytes) -> Any:
        if len(data) > PLAIN_BYTES:
            return Unread(data, parse)
        try:
            return parse(data)
        except DecodeError:
            return Unread(data, parse)

    return read


def has_more_parts(data: bytes, kind: Descriptor, most: int) -> bool:
    """Whether a message has more than ``most`` fields and items of lists, at any depth. Takes any bytes."""
    seen = 0
    todo = [(0, len(data), kind)]  # the rests of the messages that the walk is in
    while todo:
        at, end, of = todo.pop()
        parts, packed = _lists_of(of)
        while at < end:
            seen += 1
            if seen > most:
                return True
            tag, at = (data[at], at + 1) if data[at] < 0x80 else _varint(data, at, end)
            form = tag & 7
            if form == 2:  # a length, and so many bytes
                size, inside = _varint(data, at, end)
                at = min(inside + size, end)
                if (inner := parts.get(tag >> 3)) is not None:
                    if inside < at:
                        todo += [(at, end, of), (inside, at, inner)]
                        break
                elif tag >> 3 in packed:
                    seen += at - inside  # each number has at least a byte
            elif form == 0:
                _, at = _varint(data, at, end)
            else:
                at += {1: 8, 5: 4}.get(form, 0)
        if seen > most:
            return True
    return False


@cache
def _lists_of(kind: Descriptor) -> tuple[dict[int, Descriptor], frozenset[int]]:
    """The messages in a message by their field's number, and the numbers of lists of numbers."""
    parts = {field.number: field.message_type for field in kind.fields if field.message_type is not None}
    packed = (field.number for field in kind.fields if field.is_repeated and field.cpp_type not in _NO_NUMBERS)
    return parts, frozenset(packed)


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number, and where it ends. Of one that breaks off, what there is."""
    if at < end and data[at] < 0x80:  # nearly all
        return data[at], at + 1
    number = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80 or shift >= 63:
            break
        shift += 7
    return number, at
