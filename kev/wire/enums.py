"""The domain's words and the wire's enum names: ``seq_append`` <-> ``RESULT_MODE_SEQ_APPEND``."""

from __future__ import annotations

from typing import Protocol


class WireEnum(Protocol):
    """What generated enums offer."""

    def items(self) -> list[tuple[str, int]]:
        """Names and numbers."""


def word_of(wire: WireEnum, number: int) -> str | None:
    """The domain's word of a number; empty for UNSPECIFIED, None for a number that is not known."""
    names = {value: name for name, value in wire.items()}
    prefix = names[0].removesuffix("UNSPECIFIED")
    if number == 0:
        return ""
    return names[number].removeprefix(prefix).lower() if number in names else None


def name_of(prefix: str, word: str | None) -> str:
    """The wire's name of a domain word; none is UNSPECIFIED."""
    return f"{prefix}_{word.upper() if word else 'UNSPECIFIED'}"
