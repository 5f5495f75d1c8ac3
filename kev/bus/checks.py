"""What both adapters check before anything is put on the bus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kev.bus.messages import ContextPool, Lane, Piece, QueuedQuestion, digest_of_tokens
from kev.domain.errors import InvalidArgument
from kev.domain.ids import SHARED_LANES, is_queue, is_worker_id, pool_key
from kev.domain.question import MAX_QUESTIONS


def check_source(source: str) -> None:
    """Raises ``InvalidArgument`` unless ``source`` is a worker id or a shared lane, or the long queue of one."""
    if not is_queue(source):
        allowed = ", ".join(SHARED_LANES)
        raise InvalidArgument("source", f"a worker id (lower case, digits, dashes) or one of {allowed}, not {source!r}")


def check_worker(worker_id: str) -> None:
    """Raises ``InvalidArgument`` unless ``worker_id`` may name a worker."""
    if not is_worker_id(worker_id):
        raise InvalidArgument("worker_id", f"1 to 63 of lower case, digits and dashes, not {worker_id!r}")


def check_lane(lane: Lane) -> None:
    """Raises ``InvalidArgument`` unless a question may wait in ``lane``."""
    check_source(lane.queue)
    if lane.shared != (lane.channel < 0):
        raise InvalidArgument("lane", f"a worker's lane has a channel, a shared one has none: {lane}")


def check_pool(pool: ContextPool) -> None:
    """Raises ``InvalidArgument`` unless key, count and digest are those of the pool's tenant, name and tokens."""
    info = pool.info
    if info.key != pool_key(info.tenant, info.name):
        raise InvalidArgument("pool.key", "the key of the pool's tenant and name")
    if not pool.token_bytes or len(pool.token_bytes) != 4 * info.tokens:
        raise InvalidArgument("pool.tokens", f"at least 1, four bytes each; {len(pool.token_bytes)} bytes were given")
    if info.digest != digest_of_tokens(pool.token_bytes):
        raise InvalidArgument("pool.digest", "the SHA-256 of the tokens")


def unique(questions: Sequence[QueuedQuestion]) -> list[QueuedQuestion]:
    """The questions, each (rid, slot) once, after checking size and lanes.

    Raises:
        InvalidArgument: more questions than one batch may hold, or a bad lane.
    """
    if len(questions) > MAX_QUESTIONS:
        raise InvalidArgument("questions", f"at most {MAX_QUESTIONS} in one call, not {len(questions)}")
    for lane in {question.lane for question in questions}:
        check_lane(lane)
    return list({(question.rid, question.slot): question for question in reversed(questions)}.values())[::-1]


def latest_pieces(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """One piece per slot, of its highest attempt, by slot."""
    best: dict[int, Piece] = {}
    for piece in pieces:
        if piece.slot not in best or piece.attempt > best[piece.slot].attempt:
            best[piece.slot] = piece
    return tuple(best[slot] for slot in sorted(best))


Bells = Mapping[str, frozenset[str]]
"""Whose bells to ring, worker ids or ``any``, and which queues got something; none: nobody knows which."""

ALL_BELLS: Bells = {"any": frozenset()}


def bells_for(questions: Iterable[QueuedQuestion]) -> Bells:
    """The bells to ring for questions that were put in."""
    queues: defaultdict[str, set[str]] = defaultdict(set)
    for lane in {question.lane for question in questions}:
        queues["any" if lane.shared else lane.source].add(lane.queue)
    return {name: frozenset(some) for name, some in queues.items()}


def bells_for_return(question: QueuedQuestion) -> Bells:
    """The bells to ring for a question that was given back: whoever its queue belongs to may be gone."""
    return {**bells_for([question]), "any": frozenset({question.lane.queue})}
