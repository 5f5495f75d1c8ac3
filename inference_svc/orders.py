"""What the core is asked to run for a question. Pure."""

from __future__ import annotations

from inference_svc.channels import Job
from inference_svc.context import full_prompt, keeps_conversation, shared_parts
from inference_svc.gate import Verdict
from inference_svc.grammars.port import Grammar
from inference_svc.hands import Held
from inference_svc.report import Order
from inference_svc.schedule import NORMAL, PRIORITIES
from kev.domain.question import Isolation


def order_of(held: Held, verdict: Verdict, grammar: Grammar | None, strict: bool) -> Order:
    """The order of a question that may run.

    Args:
        verdict: Whether it runs alone, and the tokens of its context pool.
        grammar: Its constraint, ready.
        strict: Whether pages are scrubbed whatever the batch asks for.
    """
    question = held.question
    job = Job(
        channel=held.channel,
        group=question.rid,
        prompt=full_prompt(question, verdict.pool),
        max_tokens=max(1, question.max_tokens),
        prefix=question.prefix_tokens,
        max_parallel=max(1, question.max_parallel),
        alone=verdict.alone,
        scrub=strict or question.isolation is Isolation.STRICT,
        parts=shared_parts(question),
        tenant=question.tenant,
        keep=keeps_conversation(question),
        priority=PRIORITIES.get(question.lane.source, NORMAL),
        long=question.lane.long,
    )
    return Order(held.ticket, job, question.sampling, question.seed, held.deadline, grammar)
