"""Small, valid messages for the bus tests; every field can be overridden."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np

from kev.bus.messages import (
    ContextPool,
    Lane,
    Manifest,
    PoolInfo,
    QueuedQuestion,
    SlotPlan,
    WorkerLease,
    digest_of_tokens,
)
from kev.domain.ids import pool_key, rid_of
from kev.domain.outcome import FinishReason, Outcome, Status
from kev.domain.question import Isolation, ResultMode, Sampling

_NUMBERS = itertools.count(1)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def new_rid() -> str:
    return rid_of("tests", f"req-{next(_NUMBERS)}-{time.monotonic_ns()}")


def manifest(rid: str, slots: int = 4, **changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "rid": rid,
        "request_id": f"id-of-{rid}",
        "tenant": "tests",
        "digest": "digest-a",
        "created_ms": now_ms(),
        "grace_ms": 2000,
        "isolation": Isolation.STRICT,
        "mode": ResultMode.SLOT_MAP,
        "slots": tuple(SlotPlan(slot, now_ms() + 60_000) for slot in range(slots)),
    }
    return Manifest(**(fields | changes))


def question(rid: str, slot: int, lane: Lane, **changes: Any) -> QueuedQuestion:
    fields: dict[str, Any] = {
        "rid": rid,
        "request_id": f"id-of-{rid}",
        "tenant": "tests",
        "slot": slot,
        "prompt": np.arange(12, dtype="<i4").tobytes(),
        "prefix_tokens": 0,
        "max_tokens": 8,
        "sampling": Sampling(stop=("\n",)),
        "seed": 7,
        "deadline_ms": now_ms() + 60_000,
        "accepted_ms": now_ms(),
        "isolation": Isolation.STRICT,
        "max_parallel": 32,
        "lane": lane,
        "bucket": 3,
        "branch": "home",
        "tokenizer_digest": "tok",
    }
    return QueuedQuestion(**(fields | changes))


def questions(rid: str, count: int, lane: Lane, first: int = 0) -> list[QueuedQuestion]:
    return [question(rid, slot, lane) for slot in range(first, first + count)]


def outcome(rid: str, slot: int, text: str = "yes", **changes: Any) -> Outcome:
    fields: dict[str, Any] = {
        "request_id": f"id-of-{rid}",
        "rid": rid,
        "slot": slot,
        "status": Status.ANSWERED,
        "finish_reason": FinishReason.STOP,
        "text": text,
    }
    return Outcome(**(fields | changes))


def lease(worker_id: str, **changes: Any) -> WorkerLease:
    fields: dict[str, Any] = {
        "worker_id": worker_id,
        "channels": 4,
        "free": 4,
        "state": "ready",
        "model_digest": "model",
        "tokenizer_digest": "tok",
        "max_context": 2048,
    }
    return WorkerLease(**(fields | changes))


def pool(name: str, tenant: str = "tests", count: int = 40, start: int = 5, **changes: Any) -> ContextPool:
    token_bytes = np.arange(start, start + count, dtype="<i4").tobytes()
    fields: dict[str, Any] = {
        "key": pool_key(tenant, name),
        "tenant": tenant,
        "name": name,
        "digest": digest_of_tokens(token_bytes),
        "tokens": count,
        "tokenizer_digest": "tok",
        "created_ms": now_ms(),
    }
    return ContextPool(PoolInfo(**(fields | changes)), token_bytes)
