"""Halves of characters in JSON: what cuts a text inside an emoji leaves one, and it has no meaning alone."""

from __future__ import annotations

import re

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_UNKNOWN = rb"\ufffd"


def whole_characters(body: bytes) -> bytes:
    """The same JSON with U+FFFD for each escaped half of a surrogate pair, as every other door takes such a text.
    Escaped pairs stay, and so does what only looks like an escape behind an escaped backslash."""
    if _HALF.search(body) is None:
        return body
    return _ESCAPE.sub(lambda found: _UNKNOWN if found[1] else found[0], body)
