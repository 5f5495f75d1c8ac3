"""Names: request keys, problem ids, worker ids."""

from __future__ import annotations

import hashlib
import re
import secrets

_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_WORKER_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
REQUEST_ID_ALLOWED = "must be 1 to 128 letters, digits and . _ : -, beginning with a letter or digit"
POOL_NAME_ALLOWED = REQUEST_ID_ALLOWED
SHARED_LANES = ("express", "overflow", "background")
_LONG = ".long"


def new_request_id() -> str:
    """A fresh, unguessable request id."""
    return "req-" + secrets.token_hex(10)


def is_request_id(text: str) -> bool:
    """Whether ``text`` may be a request id: 1 to 128 of letters, digits and ``._:-``."""
    return _REQUEST_ID.fullmatch(text) is not None


def is_worker_id(text: str) -> bool:
    """Whether ``text`` may name a worker: lower case, digits, dashes; no shared lane's name."""
    return _WORKER_ID.fullmatch(text) is not None and text not in SHARED_LANES


def long_queue(source: str) -> str:
    """The queue of a source's long questions. No worker id holds a dot."""
    return source + _LONG


def is_queue(text: str) -> bool:
    """Whether ``text`` names a queue: a worker id or a shared lane, or the long one beside it."""
    source = short_queue(text)
    return source in SHARED_LANES or is_worker_id(source)


def short_queue(queue: str) -> str:
    """The reverse of ``long_queue``; a queue that is not long stays as it is."""
    return queue.removesuffix(_LONG)


def rid_of(tenant: str, request_id: str) -> str:
    """The request's key on the bus: a hash, because a raw id could hold
    wildcards or another tenant's name."""
    return hashlib.sha256(f"{tenant}\0{request_id}".encode()).hexdigest()[:32]


def pool_key(tenant: str, name: str) -> str:
    """A context pool's key on the bus: never that of another tenant, nor of a request."""
    return hashlib.sha256(f"{tenant}\0pool\0{name}".encode()).hexdigest()[:32]


def is_pool_name(text: str) -> bool:
    """Whether ``text`` may name a context pool; the same form as a request id."""
    return is_request_id(text)


def problem_id(rid: str, slot: int) -> str:
    """Names one slot of one request, unique everywhere."""
    return f"{rid}/{slot}"
