"""What callers may write as queries, turned into questions and batches.

A query is a string, a mapping (``text`` or ``messages``, optional ``id``,
``context_pool`` and limits, nothing else) or a ``Question``. Errors name the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from numbers import Integral
from typing import Any, TypedDict, TypeVar, Unpack

from kev.client import fields
from kev.domain.errors import InvalidArgument
from kev.domain.ids import REQUEST_ID_ALLOWED, is_request_id
from kev.domain.question import (
    MAX_QUESTIONS,
    Batch,
    Constraint,
    Isolation,
    Message,
    Priority,
    Question,
    ResultMode,
    Sampling,
    Strategy,
)

E = TypeVar("E", bound=StrEnum)

Query = str | Mapping[str, Any] | Question
"""One query, as a caller writes it."""
Queries = Query | Iterable[Query]
"""A batch, as a caller writes it; one query alone is a batch of one."""

KEYS = ("text", "messages", "id", *fields.CHECKS)
"""What a query may hold."""
MESSAGE_KEYS = ("role", "content")
"""What a message may hold."""
ROLES = ("system", "user", "assistant")


class Limits(TypedDict, total=False):
    """Limits of a question. As keyword arguments they hold for the queries that name none of their own."""

    max_tokens: int | None
    timeout_ms: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None
    stop: str | Sequence[str] | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    logit_bias: Mapping[int, float] | None
    logprobs: int | None
    constraint: Constraint | Mapping[str, Any] | None
    context_pool: str | None
    priority: str | None
    routing_key: str | None
    truncate: bool | None


class Options(Limits, total=False):
    """Keyword arguments of ``submit`` and ``ask``, at the engine and at the clients.

    The limits (``max_tokens``, ``timeout_ms``, ``temperature`` …) hold for the
    queries that name none of their own.

    Attributes:
        isolation: ``strict``, ``shared`` or ``loose``; None takes the deployment's.
        mode: Order of the results: ``slot_map``, ``seq_append`` or ``priority``.
        max_parallel: Most of the batch's questions in one forward.
        request_id: For idempotence; empty draws one.
        strategy: ``round_robin``, ``consistent_hash``, ``semantic_hash`` or ``length_aware``; None takes the
            deployment's.
        prefix: Text that stands before every question, as a system message; computed once where the isolation
            level lets questions share it.
    """

    isolation: str | None
    mode: str | None
    max_parallel: int | None
    request_id: str
    strategy: str | None
    prefix: str | None


def questions_of(queries: Queries, **defaults: Unpack[Limits]) -> tuple[Question, ...]:
    """The questions of a caller's queries.

    Args:
        queries: See ``Queries``. ``Question`` objects are checked, and take no defaults.
        defaults: Limits of the queries that name none of their own.

    Raises:
        InvalidArgument: names the field, e.g. ``queries[3].max_tokens``, and what is allowed.
    """
    if unknown := sorted(set(defaults) - set(fields.CHECKS)):
        raise InvalidArgument(unknown[0], f"no such limit; allowed: {', '.join(fields.CHECKS)}")
    common = fields.checked(defaults, "")
    return tuple(_question(query, f"queries[{slot}]", common) for slot, query in enumerate(_listed(queries)))


def batch_of(
    queries: Queries,
    *,
    isolation: str | None = None,
    mode: str | None = None,
    max_parallel: int | None = None,
    request_id: str = "",
    tenant: str = "",
    strategy: str | None = None,
    prefix: str | None = None,
    **defaults: Unpack[Limits],
) -> Batch:
    """The batch of a caller's queries; see ``questions_of`` and ``Batch``.

    Raises:
        InvalidArgument: names the field and what is allowed.
    """
    questions = questions_of(queries, **defaults)
    if not 1 <= len(questions) <= MAX_QUESTIONS:
        raise InvalidArgument("queries", f"must hold 1 to {MAX_QUESTIONS:,} questions; got {len(questions):,}")
    if request_id and not is_request_id(fields.string("request_id", request_id)):
        raise InvalidArgument("request_id", f"{REQUEST_ID_ALLOWED}; got {request_id[:200]!r}")
    if max_parallel is not None:
        max_parallel = fields.whole("max_parallel", max_parallel, 1, fields.MAX_UINT32)
    return Batch(
        questions=questions,
        request_id=request_id,
        tenant=tenant,
        isolation=_member(Isolation, isolation, "isolation"),
        mode=_member(ResultMode, mode, "mode"),
        max_parallel=max_parallel,
        strategy=_member(Strategy, strategy, "strategy"),
        prefix=_prefix(prefix),
    )


def _prefix(value: str | None) -> str:
    """The batch's prefix; empty for none."""
    if value is None or value == "":
        return ""
    if not (text := fields.string("prefix", value)).strip():
        raise InvalidArgument("prefix", "must hold text, or be left out")
    return text


def _listed(queries: Queries) -> list[Query]:
    if isinstance(queries, str | Mapping | Question):
        return [queries]
    if not isinstance(queries, Iterable):
        raise InvalidArgument("queries", f"must be a list of questions; got {type(queries).__name__}")
    return list(queries)


def _question(query: object, where: str, common: dict[str, Any]) -> Question:
    if isinstance(query, Question):
        return _made(query, where)
    if isinstance(query, str):
        return _built({"text": query}, where, common)
    if isinstance(query, Mapping):
        return _built(query, where, common)
    raise InvalidArgument(where, f"must be a string or an object with text or messages; got {type(query).__name__}")


def _built(query: Mapping[str, Any], where: str, common: dict[str, Any]) -> Question:
    if unknown := [key for key in query if key not in KEYS]:
        raise _unknown(where, unknown[0], KEYS)
    has_text, has_messages = query.get("text") is not None, query.get("messages") is not None
    if has_text == has_messages:
        raise InvalidArgument(where, f"must hold text or messages, {'not both' if has_text else 'it holds neither'}")
    limits = {**common, **fields.checked({name: query.get(name) for name in fields.CHECKS}, f"{where}.")}
    return Question(
        text=fields.string(f"{where}.text", query["text"]) if has_text else "",
        messages=_messages(query["messages"], f"{where}.messages") if has_messages else (),
        id=_label(query.get("id"), f"{where}.id"),
        sampling=Sampling(**{name: limits.pop(name) for name in fields.SAMPLING if name in limits}),
        **{**limits, "priority": Priority(limits.get("priority", Priority.NORMAL))},
    )


def _made(question: Question, where: str) -> Question:
    """A question object, checked like a mapping with the same values."""
    if not isinstance(question.sampling, Sampling):
        raise InvalidArgument(f"{where}.sampling", f"must be a Sampling; got {fields.shown(question.sampling)}")
    owner = {name: question.sampling if name in fields.SAMPLING else question for name in fields.CHECKS}
    limits = fields.checked({name: getattr(owner[name], name) for name in fields.CHECKS}, f"{where}.")
    return Question(
        text=fields.string(f"{where}.text", question.text),
        messages=_given_messages(question.messages, f"{where}.messages"),
        id=_label(question.id, f"{where}.id"),
        sampling=Sampling(**{name: limits.pop(name) for name in fields.SAMPLING if name in limits}),
        **{**limits, "priority": Priority(limits["priority"])},
    )


def _given_messages(value: object, where: str) -> tuple[Message, ...]:
    return () if isinstance(value, tuple | list) and not value else _messages(value, where)


def _messages(value: object, where: str) -> tuple[Message, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise InvalidArgument(where, "must be a list of at least one {role, content}")
    return tuple(_message(turn, f"{where}[{place}]") for place, turn in enumerate(value))


def _message(turn: object, where: str) -> Message:
    if isinstance(turn, Message):
        turn = {"role": turn.role, "content": turn.content}
    if not isinstance(turn, Mapping):
        raise InvalidArgument(where, "must be an object with role and content")
    if unknown := [key for key in turn if key not in MESSAGE_KEYS]:
        raise _unknown(where, unknown[0], MESSAGE_KEYS)
    return Message(
        fields.one_of(f"{where}.role", turn.get("role"), ROLES), fields.string(f"{where}.content", turn.get("content"))
    )


def _label(value: object, where: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return fields.string(where, value)
    if not isinstance(value, bool) and isinstance(value, Integral):
        try:
            return str(int(value))
        except ValueError:  # thousands of digits
            raise InvalidArgument(where, "must be at most 256 characters") from None
    raise InvalidArgument(where, f"must be a string or a whole number; got {type(value).__name__}")


def _unknown(where: str, key: object, allowed: Sequence[str]) -> InvalidArgument:
    name = key[:64] if isinstance(key, str) else fields.shown(key)
    return InvalidArgument(f"{where}.{name}", f"unknown key; allowed: {', '.join(allowed)}")


def _member(kind: type[E], value: str | None, field: str) -> E | None:
    if value is None:
        return None
    return kind(fields.one_of(field, value, tuple(kind)))
