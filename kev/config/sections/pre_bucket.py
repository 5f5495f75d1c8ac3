"""``router.pre_buckets``: types of questions that own hash buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import regex
from pydantic import AfterValidator, Field, model_validator

from kev.config.sections.base import Section, formed

NAME_ALLOWED = "must be 1 to 32 of a-z, 0-9, - and _, and begin with a letter or a number"


def _regular(text: str) -> str:
    try:
        regex.compile(text)
    except regex.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return text


class PreBucket(Section):
    """One rule of ``router.pre_buckets``: a type of questions, and its share of the hash buckets.

    It matches a question whose routing text (folded: lower case, no fillers)
    holds one of the keywords, or in which the pattern is found.
    """

    name: Annotated[str, formed(r"[a-z0-9][a-z0-9_-]{0,31}", NAME_ALLOWED)]
    keywords: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=100)], ...], Field(max_length=200)] = ()
    pattern: Annotated[str, Field(max_length=1000), AfterValidator(_regular)] = ""
    share: Annotated[float, Field(gt=0.0, lt=1.0)]

    @model_validator(mode="after")
    def _something(self) -> PreBucket:
        if not self.keywords and not self.pattern:
            raise ValueError("must have keywords, a pattern, or both")
        if any(not word.strip() for word in self.keywords):
            raise ValueError("keywords must not be blank")
        return self


def pre_bucket_widths(rules: Sequence[PreBucket], buckets: int) -> list[int]:
    """How many of the hash buckets each rule owns: its share of them, at least one."""
    return [max(1, int(rule.share * buckets)) for rule in rules]
