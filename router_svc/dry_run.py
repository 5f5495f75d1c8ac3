"""Where questions would go, without sending any: for people who tune a deployment."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from kev.bus.messages import Lane
from kev.config.settings import Settings
from kev.domain.question import Question
from kev.tokens.tokenizer import Tokenizer
from router_svc.admission import Refusal
from router_svc.assign import NO_BUCKET
from router_svc.normalise import normalise
from router_svc.pre_buckets import PreBuckets
from router_svc.prepare import Preparer, limits_of
from router_svc.ring import Ring
from router_svc.strategies import bucketing


class Routed(Struct, frozen=True):
    """What the router makes of one question.

    Attributes:
        tokens: Of the whole prompt; 0 if it was refused before it was counted.
        bucket: Hash bucket, or -1 if the strategy uses none.
        home: Global name of the bucket's channel, or empty: no bucket, no channels, or refused.
        saved: Characters that normalisation saved.
        long: Whether it goes to the long channels.
        type: Rule of ``router.pre_buckets`` that it matches, or empty.
        reason, detail: Why it would be refused; else empty.
    """

    prompt_text: str
    routing_text: str
    tokens: int
    bucket: int
    home: str
    saved: int
    reason: str = ""
    detail: str = ""
    warnings: tuple[str, ...] = ()
    long: bool = False
    type: str = ""


class DryRun:
    """Runs questions through cleaning, template, budget, bucket and ring.

    Args:
        members: The channels to assume, e.g. of the fleet that is there now.

    Raises:
        ValueError: as ``Router``.
    """

    def __init__(self, settings: Settings, tokenizer: Tokenizer, members: Iterable[Lane] = ()) -> None:
        self._level = settings.router.normalize
        self._preparer = Preparer(settings, tokenizer, limits_of(settings, tokenizer), bucketing(settings.router))
        lanes = frozenset(members)
        self._rings = {
            long: Ring((lane for lane in lanes if lane.long is long), settings.router.virtual_nodes)
            for long in (False, True)
        }
        self._types = PreBuckets(settings.router.pre_buckets, settings.router.hash_buckets)

    def route(self, question: Question) -> Routed:
        """Where this question would go while nothing is overloaded."""
        asked = question.text or next((turn.content for turn in question.messages[::-1] if turn.role == "user"), "")
        texts = normalise(asked, self._level)
        prepared = self._preparer.prepare(question)
        if isinstance(prepared, Refusal):
            return Routed(
                prompt_text=texts.prompt_text,
                routing_text=texts.routing_text,
                tokens=prepared.prompt_tokens,
                bucket=NO_BUCKET,
                home="",
                saved=texts.chars_saved,
                reason=prepared.reason,
                detail=prepared.detail,
            )
        ring = self._rings[prepared.long and len(self._rings[True]) > 0]
        has_home = prepared.bucket != NO_BUCKET and len(ring) > 0
        return Routed(
            prompt_text=texts.prompt_text,
            routing_text=texts.routing_text,
            tokens=len(prepared.prompt) // 4,
            bucket=prepared.bucket,
            home=str(ring.home(prepared.bucket)) if has_home else "",
            saved=texts.chars_saved,
            long=prepared.long,
            type=self._types.type_of(texts.routing_text),
            warnings=prepared.warnings,
        )

    def close(self) -> None:
        """Ends its threads."""
        self._preparer.close()
