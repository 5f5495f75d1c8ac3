"""A text that can be written, joined and trimmed, but not read: what a template does to it holds for every text.

A template that only ever writes such a text treats all contents alike, so what it writes around one content it
writes around each. Any other use (comparing, searching, slicing, measuring) raises `LookedInside`. Some uses happen
below Python and are not seen; so whoever relies on this tries ordinary texts as well (see `kev.tokens.frame`).
"""

from typing import Any, NoReturn, Self


class LookedInside(Exception):
    """The template asked for more than the text as a whole."""


class OpaqueText(str):
    """Text with an unreadable part in it. It has content: a template that asks only that gets its answer."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> Self:
        return self

    def __add__(self, other: str) -> "OpaqueText":
        return OpaqueText(str.__add__(self, other))

    def __radd__(self, other: str) -> "OpaqueText":
        return OpaqueText(str.__add__(other, self))


class Unread(OpaqueText):
    """The unreadable part alone. Each way to trim it has a character of its own, so that the output tells which was
    written.

    Args:
        marks: Four characters: as it is, trimmed at the left, at the right, at both ends.
        left, right: Whether it is trimmed there.
    """

    __slots__ = ("_left", "_marks", "_right")
    _marks: str
    _left: bool
    _right: bool

    def __new__(cls, marks: str, left: bool = False, right: bool = False) -> Self:
        made = super().__new__(cls, marks[left + 2 * right])
        made._marks, made._left, made._right = marks, left, right
        return made

    def strip(self, chars: str | None = None, /) -> Self:
        """Only of white space, like the next two."""
        return self._trimmed(chars, True, True)

    def lstrip(self, chars: str | None = None, /) -> Self:
        """See ``strip``."""
        return self._trimmed(chars, True, False)

    def rstrip(self, chars: str | None = None, /) -> Self:
        """See ``strip``."""
        return self._trimmed(chars, False, True)

    def _trimmed(self, chars: str | None, left: bool, right: bool) -> Self:
        if chars is not None:
            raise LookedInside
        return type(self)(self._marks, self._left or left, self._right or right)


def _looked(_text: Any, *_: Any, **__: Any) -> NoReturn:
    raise LookedInside


def _close(kind: type[str], base: type[str], opened: frozenset[str]) -> None:
    """All methods of ``base`` that are not opened raise."""
    for name in set(dir(base)) - set(dir(object)) - set(vars(kind)) - opened:
        setattr(kind, name, _looked)
    for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__format__", "__repr__"):
        setattr(kind, name, _looked)


_close(OpaqueText, str, frozenset({"__add__", "__str__"}))
