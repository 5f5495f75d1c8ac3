"""Halves of characters in JSON: what cuts a text inside an emoji leaves one, and it has no meaning alone."""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"(\\++)u([dD][89a-fA-F][0-9a-fA-F]{2})")
_LOW = re.compile(rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_UNKNOWN = rb"\ufffd"
MOST = 200_000
"""Escapes that are looked at, so that a body of nothing else costs no seconds; the parser judges the rest."""


def whole_characters(body: bytes) -> bytes:
    """The same JSON with U+FFFD for each escaped half of a surrogate pair, as every other door takes such a text.

    Escaped pairs stay, and so does what only looks like an escape behind an escaped backslash. A body is looked
    through once, and copied only if there is a half in it.
    """
    whole, copied, at = bytearray(), 0, 0
    for _ in range(MOST):
        if (found := _ESCAPE.search(body, at)) is None:
            break
        at = found.end()
        escaped = len(found[1]) % 2 == 0  # a backslash, and then plain text
        if escaped:
            continue
        if found[2][1:2] in b"89abAB" and (low := _LOW.match(body, at)) is not None:
            at = low.end()
            continue
        whole += body[copied : found.end(1) - 1]
        whole += _UNKNOWN
        copied = at
    if not copied:
        return body
    whole += body[copied:]
    return bytes(whole)
