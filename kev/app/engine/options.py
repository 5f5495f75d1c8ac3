"""What a caller may say of a batch."""

from __future__ import annotations

from kev.client.queries import Limits


class Options(Limits, total=False):
    """Keyword arguments of ``submit`` and ``ask``, the same as ``kev.Client`` takes.

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
