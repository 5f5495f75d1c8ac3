"""What a question's prompt is made of, and which parts of it its level lets others read. Pure."""

from __future__ import annotations

import numpy as np

from inference_svc.channels import Kind, Part
from inference_svc.rows import Int32Array
from kev.bus.messages import QueuedQuestion
from kev.domain.question import Isolation


def full_prompt(question: QueuedQuestion, pool: Int32Array | None) -> Int32Array:
    """All tokens from position 0 on: system prompt, context pool, and the rest; int32 ``[prompt_tokens]``."""
    prompt = question.tokens()
    if pool is None:
        return prompt
    return np.concatenate([prompt[: question.prefix_tokens], pool, prompt[question.prefix_tokens :]])


def shared_parts(question: QueuedQuestion) -> tuple[Part, ...]:
    """What the tenant's questions may share beside the deployment's system prompt.

    ``strict`` nothing, ``shared`` the batch's prefix, ``loose`` the context pool and the batch's prefix.
    """
    parts = []
    end = question.prefix_tokens
    if question.pool is not None:
        end += question.pool.tokens
        if question.isolation is Isolation.LOOSE:
            parts.append(Part(Kind.POOL, end))
    if question.batch_prefix_tokens and question.isolation is not Isolation.STRICT:
        parts.append(Part(Kind.BATCH, end + question.batch_prefix_tokens))
    return tuple(parts)


def keeps_conversation(question: QueuedQuestion) -> bool:
    """Whether the tenant's next question that begins alike may read what this one computed: ``loose`` only."""
    return question.isolation is Isolation.LOOSE
