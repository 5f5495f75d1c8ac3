"""A hash of what a batch asks: it tells a batch that comes again from another one under the same id."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from kev.domain.question import Batch

_AT_ONCE_BYTES = 30_000
"""After so many the event loop does its other work first: about every millisecond."""
_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


async def digest_of(batch: Batch) -> str:
    """A hash of everything that decides what the batch asks; the request id and the tenant are not in it.

    Fields at their default are left out: a router that knows more fields
    computes the same digest for a batch that does not use them.
    """
    digest, size = hashlib.sha256(), 0
    for part in _parts(batch):
        digest.update(part)
        size += len(part)
        if size > _AT_ONCE_BYTES:
            size = 0
            await asyncio.sleep(0)
    return digest.hexdigest()


def _parts(batch: Batch) -> Iterator[bytes]:
    """The batch as JSON, in parts."""
    told: dict[str, Any] = {
        "questions": (),
        "isolation": batch.isolation,
        "mode": batch.mode,
        "max_parallel": batch.max_parallel,
        **({"strategy": batch.strategy} if batch.strategy else {}),
    }
    if batch.prefix:
        told["prefix"] = batch.prefix
    # No text of a batch can look like the place of the questions, as quotes in it are escaped.
    before, place, after = _json(told).partition('"questions":[')
    yield (before + place).encode()
    for index, question in enumerate(batch.questions):
        yield (("," if index else "") + _json(_told(question))).encode()
    yield after.encode()


def _told(value: msgspec.Struct) -> dict[str, Any]:
    """Fields that differ from their default, with the structs in them told likewise."""
    told: dict[str, Any] = {}
    for name, default in _fields_of(type(value)):
        item = getattr(value, name)
        if item is default or item == default:
            continue
        if isinstance(item, msgspec.Struct):
            item = _told(item)
        elif isinstance(item, tuple):
            item = [_told(part) if isinstance(part, msgspec.Struct) else part for part in item]
        told[name] = item
    return told


@cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """Names and defaults of a struct's fields."""
    return tuple((field.name, field.default) for field in msgspec.structs.fields(kind))
