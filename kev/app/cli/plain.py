"""Text of a model or a user, safe for a terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """The text without control characters, which could drive the terminal; line ends and tabs stay."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def console() -> Console:
    """Standard output for tables; wide where it is no terminal."""
    from rich.console import Console

    found = Console(highlight=False)
    return found if found.is_terminal else Console(width=200, highlight=False)
