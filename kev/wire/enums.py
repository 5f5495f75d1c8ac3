"""The domain's words and the wire's enum names: ``seq_append`` <-> ``RESULT_MODE_SEQ_APPEND``."""

from __future__ import annotations

from functools import cache
from typing import Protocol


class WireEnum(Protocol):
    """What generated enums offer."""

    def items(self) -> list[tuple[str, int]]:
        """Names and numbers."""

    def __hash__(self) -> int:
        """Each is itself alone."""


def word_of(wire: WireEnum, number: int) -> str | None:
    """The domain's word of a number; empty for UNSPECIFIED, None for a number that is not known."""
    return _words(wire).get(number)


@cache
def _words(wire: WireEnum) -> dict[int, str]:
    names = {value: name for name, value in wire.items()}
    prefix = names.pop(0).removesuffix("UNSPECIFIED")
    return {0: ""} | {value: name.removeprefix(prefix).lower() for value, name in names.items()}


def name_of(prefix: str, word: str | None) -> str:
    """The wire's name of a domain word; none is UNSPECIFIED."""
    return f"{prefix}_{word.upper() if word else 'UNSPECIFIED'}"
