"""``router``: how questions get channels."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from kev.config.sections.base import Address, Count, Milliseconds, Section, Target
from kev.config.sections.pre_bucket import PreBucket, pre_bucket_widths
from kev.domain.question import Strategy


class OverflowPolicy(StrEnum):
    """What happens when no channel has room."""

    WAIT = "wait"
    QUEUE = "queue"
    REJECT = "reject"


class RouterSettings(Section):
    """``router``: how questions get channels, and what one batch may ask."""

    listen: Address = "127.0.0.1:50051"
    """Where the router serves gRPC."""
    aggregator: Target = "127.0.0.1:50052"
    """Address of the aggregator whose stream ``Ask`` relays; `tls://HOST:PORT` if it encrypts."""
    strategy: Strategy = Strategy.CONSISTENT_HASH
    """How a question gets its hash bucket."""
    hash_buckets: Annotated[int, Field(ge=1, le=65536)] = 64
    """A fixed number; each bucket has a home channel."""
    virtual_nodes: Annotated[int, Field(ge=1, le=1024)] = 64
    """Places of one channel on the ring."""
    load_factor: Annotated[float, Field(ge=1.0, le=100.0)] = 1.25
    """No channel is loaded above this share of the mean."""
    codebook: str = ""
    """File of a codebook for ``semantic_hash``, fitted to the deployment's own questions; empty needs none."""
    pre_buckets: Annotated[tuple[PreBucket, ...], Field(max_length=64)] = ()
    """Rules that give types of questions hash buckets of their own; see routing. The first that matches counts."""
    breaker_depth: Annotated[int, Field(ge=0)] = 8
    """Least questions in a home's queue at which its bucket's breaker may open; 0 turns breakers off."""
    breaker_factor: Annotated[float, Field(ge=1.0, le=100.0)] = 1.5
    """Least depth of that queue in means."""
    breaker_open_ms: Annotated[int, Field(ge=1)] = 2_000
    """How long an open breaker keeps questions from the home."""
    long_tokens: Count = 512
    """A question with so many prompt tokens of its own is long; system prompt and ``max_tokens`` do not count."""
    long_channels: Annotated[int, Field(ge=0, le=1023)] = 0
    """How many of a worker's channels take long questions only, and all of them; 0 makes no difference of length."""
    max_parallel_queries: Count = 32
    """Most channels in one forward."""
    channel_pool_size: Annotated[int, Field(ge=1, le=1024)] = 32
    """Channels of one worker."""
    overflow_policy: OverflowPolicy = OverflowPolicy.WAIT
    """What happens when no channel has room: hold the call until its deadline, use the shared lane, or refuse."""
    max_waiters: Count = 1000
    """Most submits held under ``wait``; the next one is refused."""
    normalize: Literal["off", "light", "full"] = "light"
    """How far a question is cleaned before the model reads it. ``off``: it becomes valid text (NFC, no control
    characters, no zero-width spaces). ``light``: also no white space at its ends, and of repeated punctuation
    behind a word one mark, outside of code. ``full``: also no greetings and hesitations at its front."""
    default_max_tokens: Count = 256
    """Most new tokens, where a question names none."""
    max_timeout_ms: Milliseconds = 600_000
    """Longest time a question may ask for."""
    max_text_chars: Count = 1_000_000
    """Longest question, characters; longer ones are refused before they are tokenised."""

    @model_validator(mode="after")
    def _types(self) -> RouterSettings:
        names = [rule.name for rule in self.pre_buckets]
        if double := next((name for name in names if names.count(name) > 1), ""):
            raise ValueError(f"pre_buckets must have different names, got {double!r} twice")
        owned = sum(pre_bucket_widths(self.pre_buckets, self.hash_buckets))
        if self.pre_buckets and owned >= self.hash_buckets:
            raise ValueError(
                f"pre_buckets must leave a bucket for all other questions: they own {owned} of hash_buckets = "
                f"{self.hash_buckets}"
            )
        return self

    @model_validator(mode="after")
    def _lanes(self) -> RouterSettings:
        if self.long_channels >= self.channel_pool_size:
            raise ValueError(
                f"long_channels must be below channel_pool_size ({self.channel_pool_size}), got {self.long_channels}"
            )
        if self.strategy is Strategy.LENGTH_AWARE and not self.long_channels:
            raise ValueError("strategy length_aware needs long_channels of at least 1")
        return self
